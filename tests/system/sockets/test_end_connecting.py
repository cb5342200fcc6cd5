"""An attempt at a connection ends at the device when its program ends it, in whatever way: no SYN follows. On both
kinds of queue, and behind a relay."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.caller import Caller
from beds.lab import raise_or_skip
from beds.one_process_proxy import OneProcessProxy
from beds.preload import PreloadBed, preloaded
from beds.shm_proxy import SYSTEM, library
from system.sockets.programs.end_connecting import WAYS
from xts_lab.lab import Lab
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

PROGRAM = str(SYSTEM / "sockets" / "programs" / "end_connecting.py")
WAIT_S = 30.0  # the kernel would go on with an attempt for two minutes
SYN_SENT = "02"
#: A queue of its own for as long as its input is open.
HOLDER = "import sys, xts_socket\nwith xts_socket.socket() as s:\n    print(flush=True)\n    sys.stdin.readline()\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run, and the device that connects for them."""

    address: str
    start: Callable[[list[str]], AbstractContextManager[subprocess.Popen[str]]]
    device: Callable[[], AbstractContextManager[None]]
    network: Callable[[], AbstractContextManager[None]]

    def attempts(self, port: int) -> int:
        """Connects to this port on their way."""
        with self.device():
            lines = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
        fields = [line.split() for line in lines]
        return sum(field[3] == SYN_SENT and int(field[2].split(":")[1], 16) == port for field in fields)

    def wait(self, port: int, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while (found := self.attempts(port)) != count:
            assert time.monotonic() < deadline, f"{found} attempts on their way, and not {count}"
            time.sleep(0.01)


def greet(server: socket.socket) -> None:
    """Accepts until the listener is closed, and says hi."""
    with contextlib.suppress(OSError):
        while True:
            with server.accept()[0] as peer:
                peer.sendall(b"hi")


@contextlib.contextmanager
def listeners(address: str) -> Iterator[tuple[int, int]]:
    """The port of one whose backlog is full, so that a connect waits, and of one that greets."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server((address, 0), backlog=0))
        stack.enter_context(socket.create_connection(full.getsockname()))
        good = stack.enter_context(socket.create_server((address, 0)))
        threading.Thread(target=greet, args=(good,), daemon=True).start()
        yield full.getsockname()[1], good.getsockname()[1]
        good.shutdown(socket.SHUT_RDWR)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def check(place: Place, way: str) -> None:
    with contextlib.ExitStack() as stack:
        with place.network():
            full, good = stack.enter_context(listeners(place.address))
        command = [sys.executable, PROGRAM, way, place.address, str(full), str(good)]
        process = stack.enter_context(place.start(command))
        timer = threading.Timer(2 * WAIT_S, process.kill)
        timer.start()
        stack.callback(timer.cancel)
        assert line(process) == "connecting"
        place.wait(full, 1)
        tell(process)
        ends = way in ("exit_process", "killed")
        if ends:
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL, 128 + signal.SIGKILL)
        elif not way.startswith("execute"):
            assert line(process) == "ended"
        place.wait(full, 0)
        if not ends:
            assert process.poll() is None, "it lives, so that was not the end of its process"
            process.communicate(timeout=WAIT_S)
            assert process.returncode == 0


@pytest.fixture(scope="module")
def on_shm(bed: PreloadBed) -> Place:
    def start(command: list[str]) -> AbstractContextManager[subprocess.Popen[str]]:
        environment = bed.environment(env={"XTS_STRICT": "1"})
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    return Place("127.0.0.1", start, contextlib.nullcontext, contextlib.nullcontext)


@pytest.mark.parametrize("way", WAYS)
def test_shm(on_shm: Place, way: str) -> None:
    check(on_shm, way)


def place_of(lab: Lab) -> Place:
    def start(command: list[str]) -> AbstractContextManager[subprocess.Popen[str]]:
        environment = {"LD_PRELOAD": preloaded(), "XTS_STRICT": "1"}
        return lab.popen(
            "host", command, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    return Place("198.18.0.2", start, lambda: lab.inside("dpu"), lambda: lab.inside("net"))


@pytest.fixture(scope="module")
def on_afxdp() -> Iterator[Place]:
    with raise_or_skip("afxdp", "ends") as lab:
        yield place_of(lab)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("way", WAYS)
def test_afxdp(on_afxdp: Place, way: str) -> None:
    check(on_afxdp, way)


@pytest.fixture(scope="module")
def on_relay() -> Iterator[Place]:
    """All queues but the relay's are in use."""
    with raise_or_skip("afxdp", "relayends", queues=2, relayed_max=16) as lab, contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", HOLDER]
        holder = stack.enter_context(
            lab.popen("host", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(holder.kill)
        assert holder.stdout and holder.stdout.readline() == "\n"
        yield place_of(lab)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("way", ["close", "shutdown", "number_is_used_again", "killed", "execute"])
def test_relay(on_relay: Place, way: str) -> None:
    check(on_relay, way)


#: Threads connect, each with a stack of its own, close before there is an answer, and end. A stack that is kept for the
#: next thread has a bell and a timer, and no queue.
THREADS = """
import os, socket, sys, threading, time

def attempt():
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("127.0.0.1", int(sys.argv[1])))
    s.close()

def queues():
    places = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum("xts-shm" in os.readlink(place) for place in places if os.path.islink(place))

deadline = time.monotonic() + float(sys.argv[2])
for _ in range(5):
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
while found := queues():
    assert time.monotonic() < deadline, f"{found} queues"
    time.sleep(0.01)
"""


def test_the_stack_of_a_thread_keeps_no_descriptors(bed: PreloadBed) -> None:
    """It kept the six of its queue until the attempt ended by itself."""
    with listeners("127.0.0.1") as (full, _):
        command = [sys.executable, "-c", THREADS, str(full), str(WAIT_S)]
        bed.run(command, env={"XTS_STACKS": "thread"}, strict=True)


# --- against a proxy made by hand -------------------------------------------------------------------------------------

CANCEL = table.FEATURES["CANCEL"][0]


@contextlib.contextmanager
def calling(folder: Path, features: int) -> Iterator[tuple[OneProcessProxy, Caller, int]]:
    """A proxy with these features, a caller, and the number of a socket whose CONNECT has come."""
    with OneProcessProxy(folder, features=features) as proxy, Caller(proxy, library()) as caller:
        yield proxy, caller, begin(proxy, caller)


def begin(proxy: OneProcessProxy, caller: Caller) -> int:
    s = int(caller.call("socket_nonblocking"))
    assert caller.call("connect", s) == "EINPROGRESS"
    assert proxy.expect("XTS_CMD_CONNECT").fields["xts_socket"] == s
    return s


def answer(proxy: OneProcessProxy, s: int, error: int = 0, proxy_id: int = 0x77) -> None:
    where = codec.Endpoint() if error else codec.Endpoint.of("127.0.0.1", 80)
    proxy.send("XTS_REPLY_CONNECT_ACK", id=s, error=error, proxy_id=proxy_id, post_credits=0 if error else 4096,
               local=where, peer=where)  # fmt: skip


def closed(proxy: OneProcessProxy, s: int) -> None:
    proxy.send("XTS_REPLY_RECV", flags=codec.flags("CLOSED"), id=s, post_credits=0, length=0)


@pytest.mark.parametrize("crosses", ["nothing", "success", "failure", "failure without a socket"])
def test_close_says_cancel(tmp_path: Path, crosses: str) -> None:
    with calling(tmp_path, CANCEL) as (proxy, caller, s):
        assert caller.call("close", s) == 0
        cancel = proxy.expect("XTS_CMD_CANCEL")
        assert (cancel.id, cancel.fields["xts_socket"]) == (0, s)
        if crosses == "success":
            answer(proxy, s)
            proxy.send("XTS_REPLY_RECV", b"data", id=s, post_credits=0)
        elif crosses != "nothing":
            answer(proxy, s, error=111, proxy_id=0x77 if crosses == "failure" else 0)
        closed(proxy, s)
        again = begin(proxy, caller)
        assert again != s, "its generation has moved on"
        answer(proxy, again)
        assert caller.call("connect", again) == 0
        assert caller.call("close", again) == 0
        while not (frame := proxy.expect("XTS_CMD_SEND")).flags & codec.flags("CLOSE"):
            pass
        assert frame.id == 0x77 and not proxy.backlog and proxy.up


def test_shutdown_waits_for_closed_only(tmp_path: Path) -> None:
    with calling(tmp_path, CANCEL) as (proxy, caller, s):
        caller.start("shutdown", s, 2)
        proxy.expect("XTS_CMD_CANCEL")
        answer(proxy, s)
        closed(proxy, s)
        assert caller.result() == 0
        assert caller.call("connect", s) == "EINPROGRESS"
        connect = proxy.expect("XTS_CMD_CONNECT")
        assert (connect.id, connect.fields["xts_socket"]) == (0, s)


def test_the_channel_ends_meanwhile(tmp_path: Path) -> None:
    with calling(tmp_path, CANCEL) as (proxy, caller, s):
        caller.start("shutdown", s, 2)
        proxy.expect("XTS_CMD_CANCEL")
        proxy.link.sent = (proxy.link.sent + 1) % 256  # a gap
        closed(proxy, s)
        assert caller.result() == 0
        proxy.down()


def test_an_older_proxy(tmp_path: Path) -> None:
    """CLOSE waits for CONNECT_ACK, which alone tells the identifier."""
    with calling(tmp_path, 0) as (proxy, caller, s):
        assert caller.call("close", s) == 0
        answer(proxy, s)
        assert caller.call("shutdown", s, 2) == "EBADF"  # a call, which takes what has come
        close = proxy.expect("XTS_CMD_SEND")
        assert close.id == 0x77 and close.flags & codec.flags("CLOSE")
        closed(proxy, s)
