"""The workers die while calls of a program wait for their answers: the calls are made again, of the next process
(PROTOCOL.md, "Crash")."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from beds import process_tree
from beds.crashes import ISSUED, KINDS, Crashing, crashing, tls_tables
from beds.dialogues import echo_server, peer_address
from beds.held_thread import held
from beds.operated_proxy import wait
from beds.ready import readable
from beds.restarts import Place, SharedMemory
from beds.ulp_tls import server_context

PROGRAM = Path(__file__).parent / "programs" / "caller.py"
#: Calls whose sockets the library's own thread makes again, without what the call asks for.
LATE = ["bind", "open_by_bind", "open_by_connect", "open_by_option", "open_by_send", "shut_listener", "push_on_bound"]
PATIENCE_S = 30.0
PATIENT = {"XTS_DEAD_MS": "60000"}  # the workers stand still for a while, on a slow machine for 20 s


class Caller:
    """caller.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self.pid, self._input, self._output = process.pid, process.stdin, process.stdout
        self.calls: list[str] = self._line()

    def _line(self) -> Any:
        assert readable(self._output, PATIENCE_S), "a call waits for ever"
        return json.loads(self._output.readline())

    def _says(self, line: str) -> Any:
        self._input.write(f"{line}\n")
        self._input.flush()
        return self._line()

    def _waits(self, name: str, thread: int) -> bool:
        """Does the thread nothing but to wait, and not for the interpreter or for a lock?"""
        of_thread = Path(f"/proc/{self.pid}/task/{thread}")
        assert of_thread.exists(), f"{name}: it was not under way"
        sleeps = (of_thread / "stat").read_text().rpartition(")")[2].split()[0] == "S"
        return sleeps and "futex" not in (of_thread / "wchan").read_text()

    def begin(self, calls: list[str]) -> list[int]:
        """Their threads, when all wait for answers."""
        threads = {name: int(self._says(name)) for name in calls}
        for name, thread in threads.items():
            wait(partial(self._waits, name, thread), f"wait of {name} for its answer", PATIENCE_S)
        return list(threads.values())

    def end(self) -> dict[str, str]:
        return dict(self._says(""))


@contextmanager
def caller_in(place: Place) -> Iterator[Caller]:
    with echo_server(place) as port, echo_server(place, server_context(ISSUED)) as tls_port:
        arguments = [str(PROGRAM), peer_address(place), str(port), str(tls_port), place.address]
        with place.program(arguments, PATIENT, interposed=False) as process:
            yield Caller(process)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_under_way_are_made_again(kind: str, crashes: int = 3) -> None:
    with crashing(kind) as bed, caller_in(bed.place) as caller:
        for _ in range(crashes):
            bed.crash(signal.SIGKILL, lambda _pid: caller.begin(caller.calls))
            assert caller.end() == dict.fromkeys(caller.calls, "right")


@contextmanager
def late(bed: Crashing, caller: Caller, calls: list[str]) -> Iterator[Callable[[int], None]]:
    """To begin the calls. At the end the library's own thread has made their sockets again, and then only their threads
    run."""
    before = bed.unconnected()
    with ExitStack() as threads:

        def begin(_pid: int) -> None:
            caller.begin(["of_listener"])  # its thread looks at the queue for all
            for thread in caller.begin(calls):
                threads.enter_context(held(thread))

        yield begin
        opened = sum(name.startswith("open_") for name in calls)
        wait(lambda: bed.unconnected() == before + opened, "sockets that are made again", PATIENCE_S)


def test_a_thread_that_is_late_finds_its_socket_made_again() -> None:
    with crashing("shm") as bed, caller_in(bed.place) as caller:
        with late(bed, caller, LATE) as begin:
            bed.crash(signal.SIGKILL, begin)
        assert caller.end() == dict.fromkeys(["of_listener", *LATE], "right")


def test_a_thread_that_is_late_after_the_proxy_was_started_again(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    calls = [name for name in LATE if name != "shut_listener"]  # which fails, and the listener goes on
    place = SharedMemory(tmp_path, tls_tables(tmp_path))
    with closing(place):
        place.start()
        bed = Crashing(place, place.proxy_pid, tmp_path / "proxy.sock")
        with caller_in(place) as caller:
            with late(bed, caller, calls) as begin:
                process_tree.stop(process_tree.one(place.proxy_pid, "xts-workers"))
                begin(0)
                place.end("kill")
                place.start()
            assert caller.end() == dict.fromkeys(calls, "right") | {"of_listener": "ENETDOWN"}


FORKS = """
import os, socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.readline()
if child := os.fork():
    listener.close()
    os.waitpid(child, 0)
else:
    connection, _ = listener.accept()
    connection.sendall(connection.recv(4))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_under_way_leaves_the_child_its_listener(kind: str) -> None:
    with crashing(kind) as where, where.place.program(["-c", FORKS, where.place.address], PATIENT) as process:
        assert process.stdin
        assert process.stdout
        port = int(process.stdout.readline())

        def begin(_pid: int) -> None:
            process.stdin.write("fork\n")
            process.stdin.flush()
            # it has read the line, and waits for something else
            wait(
                lambda: not Path(f"/proc/{process.pid}/syscall").read_text().startswith(("0 ", "running")),
                "fork",
                PATIENCE_S,
            )

        where.crash(signal.SIGKILL, begin)
        with where.place.connect(port, PATIENCE_S) as connection:
            connection.sendall(b"ping")
            assert connection.recv(4) == b"ping"
