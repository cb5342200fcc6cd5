"""An endpoint that has no queue for a process: one reason, and one sentence everywhere; and what is told when sockets
that should have been offloaded stay with the kernel."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.preload import ALL, preload_library
from beds.proxy_process import running_proxy
from beds.shm_proxy import library
from xts_messages.attaching import endpoint as endpoint_module
from xts_messages.attaching.attach import attach
from xts_messages.attaching.attachments import Grant, NotReady, Peer
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.attaching.queue_refusals import CAUSES_MAX, PERIOD_S, Refusals

DEADLINE_S = 30
FULL = "all 4 queues of xts0 are in use"
PYTHON = """
import xts_socket
try:
    xts_socket.socket()
except OSError as error:
    print(error)
"""
C_SOCKET = f"""
import ctypes, os
lib = ctypes.CDLL({library()!r}, use_errno=True)
assert lib.xts_socket(2, 1, 0) == -1
print(os.strerror(ctypes.get_errno()))
"""
#: Three sockets and a child's; what standard error is before them is up to the first argument.
CLIENT = """
import os, socket, subprocess, sys
way, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if way == "file":
    os.dup2(os.open(sys.argv[4], os.O_WRONLY | os.O_CREAT), 2)
for i in range(4):
    child = os.fork() if i == 3 else 0
    if i == 3 and child:
        break
    try:
        with socket.create_connection((host, port)):
            print("connected", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
if child:
    os.waitpid(child, 0)
    print("done", flush=True)
    if way == "wait":
        sys.stdin.read()
"""


class Refuser:
    """An endpoint in a thread of ours that refuses all."""

    def __init__(self, path: Path, error: OSError | None) -> None:
        self.error = error
        self.refused: list[str] = []
        self._stop = False
        self.endpoint = Endpoint(str(path), self._allocate, refused=self._note, grant_wait_s=0.05)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.endpoint.serve(lambda: self._stop)

    def _note(self, peer: Peer, reason: str) -> None:
        self.refused.append(reason)

    def _allocate(self, peer: Peer, epoch: int) -> Grant:
        if self.error is None:
            raise NotReady
        raise self.error

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self.endpoint.close()


@contextmanager
def refusing(folder: Path, error: OSError | None) -> Iterator[Refuser]:
    refuser = Refuser(folder / "endpoint.sock", error)
    try:
        yield refuser
    finally:
        refuser.close()


def settings(folder: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
    return clean | {"XTS_ENDPOINT": str(folder / "endpoint.sock")} | more


def interposed(folder: Path, **more: str) -> dict[str, str]:
    rules = folder / "rules.conf"
    rules.write_text(ALL)
    preload = ":".join(filter(None, [os.environ.get("LD_PRELOAD"), preload_library()]))
    return settings(folder, LD_PRELOAD=preload, XTS_RULES=str(rules), **more)


def output(folder: Path, program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=settings(folder),
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout.strip()


@pytest.fixture
def server() -> Iterator[list[str]]:
    """Address and port of a listener of the kernel's."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield ["127.0.0.1", str(listener.getsockname()[1])]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.EUSERS, FULL), FULL),
        (OSError(errno.ESHUTDOWN, "the proxy is stopping"), "the proxy is stopping"),
        (None, "no queue became free within 0.1 s"),
        (OSError(errno.EUSERS, "line\nfeed \x1b[2J"), "line?feed ?[2J"),
        (OSError(errno.EUSERS, "ü" * 200), "ü" * 77),
    ],
)
def test_the_program_is_told_in_the_endpoints_words(error: OSError | None, sentence: str, tmp_path: Path) -> None:
    with refusing(tmp_path, error) as refuser:
        said = output(tmp_path, PYTHON)
        assert said.startswith(f"[Errno {errno.EUSERS:d}] {os.strerror(errno.EUSERS)}: {sentence}")
        assert "\N{REPLACEMENT CHARACTER}" not in said, "it is cut between characters"
        assert output(tmp_path, C_SOCKET) == os.strerror(errno.EUSERS)
    assert len(refuser.refused) == 2  # its thread has ended: it notes a refusal after the answer has left


@pytest.mark.parametrize("limit", ["connections", "descriptors"])
def test_an_endpoint_that_is_full_itself_says_so(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses before it has been asked, however late or early the question comes."""
    with refusing(tmp_path, OSError(errno.EUSERS, "not asked")) as refuser:
        if limit == "connections":
            monkeypatch.setattr(endpoint_module, "CONNECTIONS_MAX", 0)
            sentence = "the endpoint has 0 connections, the most it serves"
        else:
            listener = refuser.endpoint._listener.socket
            accepts = [OSError(errno.EMFILE, "full")]

            class Full:
                def accept(self) -> tuple[socket.socket, object]:
                    if len(accepts) % 2:
                        accepts.append(accepts[0])
                        raise accepts[0]
                    accepts.append(accepts[0])
                    return listener.accept()

                def __getattr__(self, name: str) -> object:
                    return getattr(listener, name)

            refuser.endpoint._listener.socket = Full()  # type: ignore[assignment]
            sentence = "the endpoint is out of descriptors"
        for _ in range(20):
            with pytest.raises(OSError, match=sentence) as refused:
                attach(str(tmp_path / "endpoint.sock"))
            assert refused.value.errno == errno.EUSERS


def test_one_sentence_everywhere(tmp_path: Path, server: list[str]) -> None:
    sentence = "tenant default has 1 processes attached, the most that limits.clients allows"
    with running_proxy(tmp_path, "[limits]\nclients = 1\n") as proxy:
        with attach(proxy.endpoint):
            assert sentence in output(tmp_path, PYTHON)
            done = subprocess.run(
                [sys.executable, "-m", "xts_socket.cli", "doctor", "--json", "--endpoint", proxy.endpoint],
                capture_output=True, text=True, env=settings(tmp_path), timeout=DEADLINE_S, check=False,
            )  # fmt: skip
            (check,) = (c for c in json.loads(done.stdout)["checks"] if c["name"] == "attach")
            assert sentence in check["found"]
            assert "limit" in check["mend"]
            command = [sys.executable, "-c", CLIENT, "wait", *server]
            with subprocess.Popen(
                command, env=interposed(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            ) as program:  # fmt: skip
                assert program.stdout is not None
                assert program.stdin is not None
                assert [program.stdout.readline().strip() for _ in range(5)] == ["connected"] * 4 + ["done"]
                status = [sys.executable, "-m", "xts_socket.cli", "status", "--processes", "--pid", str(program.pid)]
                shown = subprocess.run(status, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
                _, told = program.communicate(timeout=DEADLINE_S)
        assert sentence in " ".join(shown.split())  # a table breaks it, by how long the folder for tests is
        assert "NO_QUEUE" in shown
        assert told.splitlines() == [
            f"libxts: {Path(sys.executable).name} (process {program.pid}): "
            f"not offloaded, sockets stay with the kernel (NO_QUEUE): {sentence}"
        ]
    assert f"refused: {sentence}" in proxy.log.read_text()


@pytest.mark.parametrize("way", ["-", "file", "quiet", "pipe", "strict"])
def test_told_once_where_somebody_reads_it(way: str, tmp_path: Path, server: list[str]) -> None:
    file = tmp_path / "file"
    with refusing(tmp_path, OSError(errno.EUSERS, FULL)):
        more = {"quiet": {"XTS_QUIET": "1"}, "strict": {"XTS_STRICT": "1"}}.get(way, {})
        reader, writer = os.pipe()
        if way == "pipe":
            os.close(reader)  # nobody reads: the program must not end by SIGPIPE
        done = subprocess.run(
            ["sh", "-c", 'trap - PIPE; exec "$@"', "sh", sys.executable, "-c", CLIENT, way, *server, str(file)],
            env=interposed(tmp_path, **more), stdout=subprocess.PIPE, stderr=writer, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        os.close(writer)
        told = ""
        if way != "pipe":
            with os.fdopen(reader) as end:
                told = end.read()
    outcome = os.strerror(errno.EUSERS) if way == "strict" else "connected"
    assert done.stdout.decode().splitlines() == [outcome] * 4 + ["done"]
    if way in ("-", "strict"):
        assert told.count("(NO_QUEUE, strict)" if way == "strict" else "(NO_QUEUE)") == told.count("\n") == 1
        assert way == "-" or re.search(f" to {server[0]}:{server[1]}: not offloaded, so its call fails", told)
        assert told.endswith(f": {FULL}\n")
    else:
        assert told == ""
    assert not file.exists() or not file.read_text()


def test_installed_python_tells_it_too(tmp_path: Path, server: list[str]) -> None:
    program = "import socket, sys, xts_socket\nxts_socket.install()\n" + 2 * (
        "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s: print(s.reason.name)\n"
    )
    rules = tmp_path / "rules.conf"
    rules.write_text(ALL)
    with refusing(tmp_path, OSError(errno.EUSERS, FULL)):
        done = subprocess.run(
            [sys.executable, "-c", program, *server], env=settings(tmp_path, XTS_RULES=str(rules)),
            capture_output=True, text=True, timeout=DEADLINE_S, check=True,
        )  # fmt: skip
    assert done.stdout.split() == ["NO_QUEUE"] * 2
    assert done.stderr.count(FULL) == 1


def test_the_log_says_a_cause_once_in_a_while() -> None:
    lines: list[str] = []
    now = [0.0]
    log = Refusals(lines.append, lambda: now[0])
    peer = Peer(7, 1000, 1000, "evil\n\x1b[2J", 0, 0)
    for _ in range(1000):
        log.note(peer, FULL)
    assert lines == [f"process 7 (evil??[2J) of user 1000 refused: {FULL}"]
    log.note(peer, "another")
    assert lines[1:] == ["process 7 (evil??[2J) of user 1000 refused: another"]
    now[0] = PERIOD_S
    log.note(peer, FULL)
    assert lines[2].endswith(f"refused: {FULL} (and 999 times before)")
    for uid in range(3 * CAUSES_MAX):
        log.note(Peer(7, uid, 0, "", 0, 0), FULL)
    assert len(log._said) == CAUSES_MAX


def test_a_proxy_without_descriptors_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes attach until there are none left; then each hears why, and when one has gone the next is served."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -n 300\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with ExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(python))
            proxy = stack.enter_context(running_proxy(tmp_path))
        held = []
        with pytest.raises(OSError, match=r"no descriptors are left .*RLIMIT_NOFILE.*: tenant default") as refused:
            while len(held) < 120:
                held.append(stack.enter_context(attach(proxy.endpoint, program="test")))
        assert held and refused.value.errno == errno.EUSERS
        held.pop().close()
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                attach(proxy.endpoint, program="test").close()
                break
            except OSError as error:
                assert error.errno == errno.EUSERS and time.monotonic() < end
