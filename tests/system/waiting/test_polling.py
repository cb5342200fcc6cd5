"""Waits that poll instead of sleeping (XTS_POLLING, proxy.polling), what is told of them, and gaps between wake-ups
(XTS_WAKEUP_GAP_US, proxy.wakeup_gap_us); on both kinds of queue."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.operated_proxy import wait
from beds.ready import readable
from beds.restarts import Place, place
from xts_proxy.status import control_socket
from xts_socket.cli.sockets import attached

PROGRAM = Path(__file__).with_name("programs") / "polling.py"
PATIENCE_S = 20.0
WAYS = ("answered", "in time", "by a signal", "by a pipe", "by another thread")
ECHOES, FEW = 300, 20
GAP_US = 5_000


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout and process.stderr
    if not readable(process.stdout, PATIENCE_S):
        return "never"
    return process.stdout.readline().strip() or process.stderr.read()


def echo(connection: socket.socket) -> None:
    """Sends back what comes, and after "go" a byte every millisecond."""
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(65536):
            if data != b"go":
                connection.sendall(data)
                continue
            for _ in range(300):
                connection.sendall(b".")
                time.sleep(0.001)


@contextlib.contextmanager
def echo_server(where: Place) -> Iterator[tuple[str, int]]:
    with where.network():
        server = socket.create_server(("", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield (where.server, int(server.getsockname()[1]))
    finally:
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(PATIENCE_S)


@pytest.fixture(scope="module", params=["shm", pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp])])
def where(request: pytest.FixtureRequest) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="xts-polls-") as folder:
        Path(folder).chmod(0o755)
        with place(request.param, Path(folder)) as made:
            yield made


@pytest.fixture(scope="module")
def arguments(where: Place) -> Iterator[tuple[str, str]]:
    """Of programs there: their peer."""
    with echo_server(where) as (address, port):
        yield address, str(port)


def process_of(where: Place, pid: int) -> attached.Process:
    (found,) = [process for process in attached.ask(where.endpoint) if process.pid == pid]
    return found


def worker_of(where: Place) -> dict[str, Any]:
    found: dict[str, Any] = control_socket.ask(str(where.files / "proxy.sock"), control_socket.Question("status"))[
        "workers"
    ][0]
    return found


def reloads(where: Place) -> int:
    found: dict[str, Any] = control_socket.ask(str(where.files / "proxy.sock"), control_socket.Question("status"))
    return int(found["proxy"]["reloads"]["taken"])


@contextlib.contextmanager
def configured(where: Place, lines: str) -> Iterator[None]:
    """The running proxy has these lines in [proxy], for a while."""
    file = where.files / "proxy.toml"
    text = file.read_text()
    for now in (text.replace("[proxy]\n", f"[proxy]\n{lines}\n", 1), text):
        before = reloads(where)
        file.write_text(now)
        os.kill(where.proxy_pid, signal.SIGHUP)
        wait(lambda before=before: reloads(where) > before, "reload", PATIENCE_S)  # type: ignore[misc]
        if now is not text:
            yield


def test_a_host_that_is_not_woken_often(where: Place, arguments: tuple[str, str]) -> None:
    settings = {"XTS_WAKEUP_GAP_US": str(GAP_US), "XTS_SPIN_US": "0"}
    with where.program([str(PROGRAM), *arguments, str(FEW), "gaps"], settings) as program:
        assert [line(program) for _ in range(1 + len(WAYS))] == ["connected", *WAYS]
        calls, took_s = map(float, line(program).split())
        assert calls <= took_s * 1e6 / GAP_US + 2, "each call is a wake-up"
        assert process_of(where, program.pid).spins == 0


def test_a_worker_that_polls(where: Place, arguments: tuple[str, str]) -> None:
    """As long as it has a socket. Then it sleeps again."""
    keys = 'polling = "always"\nspin_us = 0'
    with configured(where, keys), where.program([str(PROGRAM), *arguments, str(ECHOES)]) as program:
        assert [line(program) for _ in range(1 + len(WAYS))] == ["connected", *WAYS]
        before = worker_of(where)
        wait(lambda: worker_of(where)["spins"] > before["spins"] + 10_000, "polling worker", PATIENCE_S)
        after = worker_of(where)
        assert after["sleeps"] == before["sleeps"]
        assert after["poll_ns"] - before["poll_ns"] > (after["cpu_ns"] - before["cpu_ns"]) / 2
        assert 0 < after["hits"] < after["rounds"]
        program.kill()
        wait(lambda: not worker_of(where)["connections"], "end of its connections", PATIENCE_S)
        wait(lambda: worker_of(where)["sleeps"] > after["sleeps"], "worker that sleeps again", PATIENCE_S)


def test_a_worker_that_is_not_woken_often(where: Place, arguments: tuple[str, str]) -> None:
    keys = f"wakeup_gap_us = {GAP_US}\nspin_us = 0"
    with configured(where, keys), where.program([str(PROGRAM), *arguments, str(FEW)]) as program:
        begun = time.monotonic()
        before = worker_of(where)["sleeps"]
        assert [line(program) for _ in range(1 + len(WAYS))] == ["connected", *WAYS]
        found = worker_of(where)
        # each question of ours is asked and answered by two of its wake-ups, whatever the gap
        assert found["sleeps"] - before <= (time.monotonic() - begun) * 1e6 / GAP_US + 4
        assert found["gaps"] > 10


def has_told(process: attached.Process) -> bool:
    """Answers are hits; the time-out and the signal are misses."""
    return process.spins >= ECHOES * 0.9 and process.polling is not None and process.polling.spin_misses >= 2


def test_a_host_that_polls(where: Place, arguments: tuple[str, str]) -> None:
    """It does all that one that sleeps does, and hardly sleeps: only a second thread does, and threads of the library
    that are in no call."""
    with where.program(
        [str(PROGRAM), *arguments, str(ECHOES)], {"XTS_POLLING": "always", "XTS_DEAD_MS": "500"}
    ) as program:
        said = [line(program) for _ in range(1 + len(WAYS))]
        assert said == ["connected", *WAYS]
        wait(lambda: has_told(process_of(where, program.pid)), "hits and misses", PATIENCE_S)
        seen = process_of(where, program.pid)
        assert seen.sleeps < ECHOES / 10
        wait(lambda: (process_of(where, program.pid).polling_part or 0) > 0.3, "much polling", PATIENCE_S)
        assert process_of(where, program.pid).sleeps <= seen.sleeps + 1
        where.end("kill")
        assert line(program) in ("Connection reset by peer", "Network is down")
