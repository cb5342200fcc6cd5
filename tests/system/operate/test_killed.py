"""What `xts status` keeps of a program that was killed, which can tell nobody itself: on shared memory from the proxy,
on AF_XDP from the agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.lab import raise_or_skip
from beds.proxy_process import running_proxy
from beds.ready import readable
from xts_lab.lab import Lab

XTS = [sys.executable, "-m", "xts_socket.cli"]
WAIT_S = 20.0
ECHO_4000 = """
import socket
with socket.create_server(("198.18.0.2", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(connection.recv(4000, socket.MSG_WAITALL))
"""
#: Has 4,000 bytes echoed over an offloaded socket, makes two that stay, and does as its third argument says.
PROGRAM = """
import os, socket, sys, time
address = sys.argv[1], int(sys.argv[2])
s = socket.create_connection(address)
s.sendall(bytes(4000))
assert len(s.recv(4000, socket.MSG_WAITALL)) == 4000
begun = time.process_time()
while time.process_time() < begun + 0.25: pass
for _ in range(2):
    with socket.socket() as kept: kept.connect_ex(("127.0.0.1", 9))
print("done", flush=True)
exec(sys.argv[3])
sys.stdin.readline()
"""
RULES = "use os tcp_client 127.0.0.1:9\nuse xts tcp_client *:*\n"


def wait(reached: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (value := reached()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


class Bed:
    """Programs under `xts run`, whatever the queue is."""

    def __init__(self, popen: Callable[..., subprocess.Popen[bytes]], rules: Path, address: tuple[str, int]) -> None:
        self.popen = popen
        self.rules = rules
        self.address = address
        rules.write_text(RULES)

    @contextlib.contextmanager
    def program(self, then: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """It has done what it does, and waits."""
        host, port = self.address
        run = [*XTS, "run", "--rules", str(self.rules), "--", sys.executable, "-c", PROGRAM, host, str(port), then]
        with self.popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout and readable(process.stdout, WAIT_S)
                assert process.stdout.readline() == b"done\n"
                yield process
            finally:
                process.kill()

    def status(self, *arguments: str) -> str:
        with self.popen([*XTS, "status", *arguments], stdout=subprocess.PIPE) as process:
            out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        return str(out.decode())

    def ended(self, pid: int) -> list[dict[str, Any]]:
        return list(json.loads(self.status("--json", "--pid", str(pid)))["ended"])

    def kill(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What is said of it then."""
        process.kill()
        process.wait()
        (ended,) = wait(lambda: self.ended(process.pid), "it is listed")
        return dict(ended)


@contextlib.contextmanager
def over_shm(folder: Path, keep_s: int = 600) -> Iterator[Bed]:
    with running_proxy(folder, f"ended_keep_s = {keep_s}\n") as proxy, contextlib.ExitStack() as undo:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}

        def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, env=environment | {"XTS_ENDPOINT": proxy.endpoint}, **options)

        echo = undo.enter_context(popen([sys.executable, "-c", ECHO_4000.replace("198.18.0.2", "127.0.0.1")],
                                        stdout=subprocess.PIPE))  # fmt: skip
        undo.callback(echo.kill)
        assert echo.stdout
        yield Bed(popen, folder / "rules.conf", ("127.0.0.1", int(echo.stdout.readline())))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "killed")
    try:
        yield raised
    finally:
        assert not raised.down()


@contextlib.contextmanager
def over_afxdp(folder: Path, lab: Lab) -> Iterator[Bed]:
    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return lab.popen("host", command, **options)

    with lab.popen("net", [sys.executable, "-c", ECHO_4000], stdout=subprocess.PIPE) as echo:
        try:
            assert echo.stdout
            yield Bed(popen, folder / "rules.conf", ("198.18.0.2", int(echo.stdout.readline())))
        finally:
            echo.kill()


@pytest.fixture(params=["shm", pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp])])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    if request.param == "shm":
        with over_shm(tmp_path) as made:
            yield made
    else:
        with over_afxdp(tmp_path, request.getfixturevalue("lab")) as made:
            yield made


def test_what_a_killed_program_did(bed: Bed) -> None:
    with bed.program() as process:
        assert bed.ended(process.pid) == []
        ended = bed.kill(process)
        assert (ended["offloaded"], ended["sent_bytes"], ended["received_bytes"]) == (1, 4000, 4000)
        (stayed,) = ended["stayed"]
        assert (stayed["name"], stayed["count"]) == ("RULE", 2)
        assert 0.1 < ended["user_s"] + ended["system_s"] < WAIT_S
        assert ended["signal"] in ("SIGKILL", None)  # older kernels do not say
        assert ended["uid"] == os.getuid() and 0 <= ended["ended_s_ago"] < WAIT_S
        (line,) = [line for line in bed.status().splitlines() if f"({process.pid})" in line]
        assert " 1 " in line and " 2 (2 RULE) " in line and " 4000 " in line


def test_a_program_that_ends_by_itself_is_not_kept(bed: Bed) -> None:
    with bed.program() as orderly, bed.program() as killed:
        orderly.communicate(b"\n", timeout=WAIT_S)
        bed.kill(killed)
        assert bed.ended(orderly.pid) == []


def test_one_that_executes_another_is_not_taken_for_killed(bed: Bed) -> None:
    then = f"os.execl({sys.executable!r}, 'python', '-c', 'import sys; print(1, flush=True); sys.stdin.readline()')"
    with bed.program(then) as process, bed.program() as killed:
        assert process.stdout and process.stdout.readline() == b"1\n"
        bed.kill(killed)
        assert bed.ended(process.pid) == []
        process.communicate(b"\n", timeout=WAIT_S)
        bed.kill(killed)
        assert [ended["signal"] for ended in bed.ended(process.pid)] in ([], [None])  # as an older kernel has it


def test_a_child_and_a_program_of_several_stacks(bed: Bed) -> None:
    """The child's figures are its own; stacks of one process are one line."""
    fork = """
if os.fork() == 0:
    with socket.create_connection(address) as mine: mine.sendall(bytes(10)); mine.close()
    os.kill(os.getpid(), 9)
import xts_socket, threading
def other():
    with socket.create_connection(address) as s:
        s.sendall(bytes(500)); os.wait(); print("both", flush=True); sys.stdin.readline()
threading.Thread(target=other).start()
"""
    with bed.program(fork) as process:
        assert process.stdout and process.stdout.readline() == b"both\n"
        ended = bed.kill(process)
        assert (ended["offloaded"], ended["sent_bytes"]) == (2, 4500)
        everybody = json.loads(bed.status("--json"))["ended"]
        (child,) = [p for p in everybody if p["pid"] != process.pid and (p["offloaded"], p["sent_bytes"]) == (1, 10)]
        assert child["stayed"] == []


def test_it_is_forgotten_after_its_time(tmp_path: Path) -> None:
    with over_shm(tmp_path, keep_s=4) as bed, bed.program() as process:
        bed.kill(process)
        wait(lambda: not bed.ended(process.pid), "it is forgotten")


def test_none_is_kept_if_the_operator_wants_none(tmp_path: Path) -> None:
    with over_shm(tmp_path, keep_s=0) as bed, bed.program() as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait(lambda: not json.loads(bed.status("--json"))["processes"], "it has gone")
        assert bed.ended(process.pid) == []


def test_a_program_that_has_called_install(tmp_path: Path) -> None:
    """It counts as the interposer does."""
    program = """
import sys, xts_socket
xts_socket.install(sys.argv[3])
import socket
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(bytes(100))
print("done", flush=True)
sys.stdin.readline()
"""
    with over_shm(tmp_path) as bed:
        host, port = bed.address
        command = [sys.executable, "-c", program, host, str(port), str(bed.rules)]
        with bed.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.readline() == b"done\n"
            ended = bed.kill(process)
            assert (ended["offloaded"], ended["stayed"], ended["sent_bytes"]) == (1, [], 100)


def test_a_socket_of_the_kernels_after_the_last_call(tmp_path: Path) -> None:
    """Its reason is written though the library is not called any more."""
    with over_shm(tmp_path) as bed, socket.create_server(("127.0.0.1", 0)):
        with bed.program("socket.socket().connect_ex(('127.0.0.1', 9)); print('more', flush=True)") as process:
            assert process.stdout and process.stdout.readline() == b"more\n"
            assert [reason["count"] for reason in bed.kill(process)["stayed"]] == [3]
