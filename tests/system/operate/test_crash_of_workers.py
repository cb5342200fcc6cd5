"""The workers' process dies by a signal: connections and listeners go on, and nothing carries a wrong byte
(PROTOCOL.md, "Crash")."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from beds import process_tree
from beds.crashes import (
    BUSY_KINDS,
    KINDS,
    LISTENERS,
    NEW_CONNECTIONS_S,
    SHARES,
    SIGNALS,
    Crashing,
    crash_under_load,
    crashing,
    program,
    use,
)
from beds.dialogues import LATE_CHILD, echo_server, peer_address
from beds.operated_proxy import running, wait
from beds.ready import readable
from beds.restarts import SharedMemory
from beds.scripted_host import ScriptedHost
from xts_lab.free_ports import free_port
from xts_messages.attaching.attach import attach
from xts_messages.native import ffi, lib
from xts_messages.wire import wire_table as table

IN_COMMON = """
import os, socket, sys
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(20)]
def use():
    for connection in connections:
        connection.sendall(b"request")
        assert connection.recv(7, socket.MSG_WAITALL) == b"request"
    print("used", flush=True)
use()
to_child, tell = os.pipe()
if os.fork() == 0:
    while os.read(to_child, 1):
        use()
    os._exit(0)
os.close(to_child)
for line in sys.stdin:
    if line == "child\\n":
        os.write(tell, b"x")
    else:
        use()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_parent_and_its_child_have_goes_on(kind: str) -> None:
    """Whoever has held the connections, each of them can have them after a crash."""
    with crashing(kind) as where, echo_server(where.place) as port:
        arguments = ["-c", IN_COMMON, peer_address(where.place), str(port)]
        with where.place.program(arguments) as process:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == "used\n"
            for user in ("child", "child", "parent", "parent", "child"):
                where.crash(random.choice(SIGNALS))
                process.stdin.write(f"{user}\n")
                process.stdin.flush()
                assert readable(process.stdout, 10), f"{user}: it waits, or has failed"
                assert process.stdout.readline() == "used\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_joins_the_listener_of_a_parent_that_sleeps(kind: str) -> None:
    with crashing(kind) as where, where.place.program(["-c", LATE_CHILD, where.place.address]) as process:
        assert process.stdout
        assert process.stdin
        port = int(process.stdout.readline())
        where.crash(signal.SIGKILL)
        process.stdin.write("begin\n")
        process.stdin.flush()
        with where.place.connect(port, 10) as connection:
            connection.sendall(b"ping")
            assert connection.recv(4) == b"ping"


DATAGRAMS_OF_CHILDREN = """
import os, socket, sys
for kept in range(2):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((sys.argv[1], 0))
    print(sock.getsockname()[1], flush=True)
    if os.fork() == 0:
        while True:
            data, peer = sock.recvfrom(100)
            sock.sendto(data, peer)
    if not kept:
        sock.close()
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_children_that_sleep_for_datagrams_go_on(kind: str, crashes: int = 3) -> None:
    """They say that they wait before the next process knows the socket. One socket its parent has, too."""
    with crashing(kind) as where, where.place.program(["-c", DATAGRAMS_OF_CHILDREN, where.place.address]) as process:
        assert process.stdout
        ports = [int(process.stdout.readline()) for _ in range(2)]

        def served(port: int) -> bool:
            with suppress(OSError):
                return where.place.datagram(port) == b"question"
            return False

        for port in ports:
            wait(lambda port=port: served(port), "children that serve", 10)
        for number in range(crashes):
            where.crash(SIGNALS[number % 2])
            for port in ports:
                wait(lambda port=port: served(port), "children that serve after a crash", 10)


IN_TURNS = """
import os, socket, sys, time

def use(connection):
    request = os.urandom(300)
    connection.sendall(request)
    if connection.recv(300, socket.MSG_WAITALL) != request:
        os._exit(99)

while True:
    began = time.monotonic()
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as connection:
            said = 0
            while not said:
                use(connection)
                if (child := os.fork()) == 0:
                    try:
                        use(connection)
                        os._exit(0)
                    except OSError as error:
                        os._exit(error.errno)
                said = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                assert said != 99 and said >= 0
                print(said, time.monotonic() - began, flush=True)
                began = time.monotonic()
    except OSError as error:
        print(error.errno or 110, time.monotonic() - began, flush=True)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_hands_goes_on(kind: str, crashes: int = 4) -> None:
    """A connection is parked, and taken, all the time, and in between its last holder has ended: a crash ends few, and
    nobody waits for one that has ended."""
    turns: list[tuple[int, float]] = []
    with crashing(kind) as where, echo_server(where.place) as port:
        with where.place.program(["-c", IN_TURNS, peer_address(where.place), str(port)]) as process:
            assert process.stdout
            for _ in range(crashes):
                for _ in range(random.randrange(2, 5)):
                    assert process.stdout.readline()
                time.sleep(random.random() / 50)  # at any moment of a turn
                where.crash(random.choice(SIGNALS))
                for _ in range(5):
                    assert readable(process.stdout, 10), "it waits"
                    status, seconds = process.stdout.readline().split()
                    turns.append((int(status), float(seconds)))
            process.kill()
    assert {status for status, _ in turns} <= {0, errno.ECONNRESET}, turns
    assert sum(status != 0 for status, _ in turns) <= crashes / 2, turns
    assert max(seconds for _, seconds in turns) < 5, turns  # it was 12


ATTACHING = """
import socket, sys
import xts_socket
made = xts_socket.socket()
made.connect((sys.argv[1], int(sys.argv[2])))
for _ in range(int(sys.argv[3])):
    made.sendall(b".")
    assert made.recv(1) == b"."
print(len(made.getsockname()), flush=True)
"""


def said(process: subprocess.Popen[str]) -> str:
    """Its line; "": there is none."""
    assert process.stdout
    assert process.stderr
    return process.stdout.readline() if readable(process.stdout, 20) else process.stderr.read()


def asks(pid: int) -> bool:
    """Has it sent its request for a queue, and waits for the answer?"""
    named = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed meanwhile
            named.append(str(entry.readlink()))
    sleeps = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    return sleeps and any(name.startswith("socket:") for name in named)


@pytest.mark.parametrize("before", [None, 3, 300])
def test_a_process_that_attaches_at_that_moment(before: int | None) -> None:
    """Its request has come before the supervisor knows that the workers are dead. `before`: another process has had the
    number of its queue, and sent so many messages: the dead one's state of that queue is none of this one."""
    with crashing("shm") as where, echo_server(where.place) as port:
        arguments = ["-c", ATTACHING, peer_address(where.place), str(port)]
        if before:
            with where.place.program([*arguments, str(before)], interposed=False) as process:
                assert said(process) == "2\n"
            wait(lambda: not where.status()["channels"], "the end of its channel")
        os.kill(where.pid, signal.SIGSTOP)
        with where.place.program([*arguments, "1"], interposed=False) as process:
            wait(lambda: asks(process.pid), "the request for a queue")
            where.crash(signal.SIGKILL)
            os.kill(where.pid, signal.SIGCONT)
            assert said(process) == "2\n"
        assert where.status()["proxy"]["crashes"]["count"] == 1


def test_a_hello_that_was_repeated_before() -> None:
    """On a busy machine it is behind the first one in the queue, and the host is up, with messages behind it. The next
    process opened the link by it, and ended it with EPROTO at what the host said to REPLACED."""
    with crashing("shm") as where:
        attachment = attach(where.place.endpoint, program="test")
        with closing(attachment):
            host = ScriptedHost(attachment.queue, attachment.epoch, {"features": table.FEATURES["RESUME"][0]})
            memory = ffi.new("uint8_t[128]")
            hello = bytes(ffi.buffer(memory, lib.xts_link_control(host.link, memory, time.monotonic_ns())))
            host.raw(hello)
            host.open()

            def before(_: int) -> None:
                host.raw(hello)
                option = {"level": socket.IPPROTO_TCP, "option": socket.TCP_KEEPIDLE, "length": 4}
                host.send("XTS_CMD_SETSOCKOPT", bytes(4), xts_socket=1, token=1, domain=4, **option)

            where.crash(signal.SIGKILL, before)
            assert host.wait_down() == errno.ERESTART
            host.__post_init__()  # another link, of the same epoch
            host.open()
            host.send("XTS_CMD_RESUME")
            assert host.connect("127.0.0.1", free_port("127.0.0.1"))[1].error == errno.ECONNREFUSED


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_at_rest_goes_on(kind: str, crashes: int = 4, idle: int = 50) -> None:
    accepted: list[socket.socket] = []
    with crashing(kind) as bed, program(bed.place, idle) as on, ExitStack() as stack:
        assert on.does("use")["failures"] == []
        for number in range(crashes):
            announced = [stack.enter_context(bed.place.connect(port, 10)) for port in on.ports]
            bed.announced(LISTENERS)
            bed.crash(SIGNALS[number % 2])
            waiting = [stack.enter_context(bed.place.connect(port, 10)) for port in on.ports]
            assert on.does("connect")["failures"] == []
            accepted += announced + waiting
            on.does("accept")
            assert on.does("accept") == {"accepted": len(accepted), "without": []}
            assert use(on, accepted) == {"failures": [], "used": idle + len(accepted)}
        proxy = bed.status()["proxy"]
        assert (proxy["crashes"]["count"], proxy["state"]) == (crashes, "running")
        assert sum(worker["torn"] for worker in bed.status()["workers"]) == 0


@pytest.mark.parametrize("idle", [4, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_new_connections_are_possible_soon(kind: str, idle: int, crashes: int = 5) -> None:
    """Both ways, and whatever others there are. Its log has the time of the proxy; -s shows both."""
    connected, accepted = [], []
    with crashing(kind) as bed, program(bed.place, idle) as on:
        for number in range(crashes):
            bed.crash(SIGNALS[number % 2])
            begun = time.monotonic()
            with ExitStack() as stack:
                for port in on.ports:
                    stack.enter_context(bed.place.connect(port, 10))
                assert on.does("accept")["without"] == []
            accepted.append(time.monotonic() - begun)
            bed.crash(SIGNALS[number % 2])
            said = on.does("connect")
            assert said["failures"] == []
            connected.append(said["seconds"])
        logged = "".join(file.read_text() for file in bed.control.parent.glob("*log")).splitlines()
        said_by_proxy = [line for line in logged if "another process goes on" in line]
        sys.stdout.write("\n".join([f"connect {connected}, accept {accepted} s", *said_by_proxy, ""]))
    assert statistics.median(connected) < NEW_CONNECTIONS_S
    assert statistics.median(accepted) < NEW_CONNECTIONS_S


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_under_way_are_right_or_the_connection_is_reset(kind: str, crashes: int = 4) -> None:
    ended = []
    with crashing(kind) as bed, program(bed.place, 5) as on:
        for number in range(crashes):
            on.does("begin")
            assert on.does("carry")["bytes"]
            bed.crash(SIGNALS[number % 2])
            assert on.does("connect")["failures"] == []
            ended.append(on.does("end")["flow"])
        assert set(ended) <= {"right", "ECONNRESET", "EPIPE"}, ended
        assert on.does("use")["failures"] == []
        assert bed.status()["proxy"]["crashes"]["count"] == crashes


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", BUSY_KINDS)
def test_two_hundred_crashes(kind: str) -> None:
    kept = crash_under_load(kind, 200)
    sys.stdout.write(f"{kept}\n")
    assert all(kept.share(name) >= share for name, share in SHARES.items()), kept
    assert kept.slowest_s < NEW_CONNECTIONS_S, kept


@pytest.mark.parametrize("kind", BUSY_KINDS)
def test_what_is_busy_goes_on(kind: str) -> None:
    kept = crash_under_load(kind, 6)
    assert not [end for ends in kept.ended.values() for end in ends if "wrong" in end], kept
    assert kept.share("idle") == 1.0
    assert kept.share("busy") >= 0.9, kept
    assert kept.share("under way") >= 0.8, kept


@pytest.mark.root
@pytest.mark.afxdp
def test_what_is_busy_goes_on_over_a_wire_that_loses_frames() -> None:
    """What had arrived is not lost by the crash, and what had not comes once."""
    kept = crash_under_load("lossy", 6)
    assert not [end for ends in kept.ended.values() for end in ends if "wrong" in end], kept
    assert kept.share("idle") == 1.0
    assert kept.share("busy") >= 0.9, kept


def test_the_third_crash_in_ten_minutes_is_one_too_many() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-crash-")))
        folder.chmod(0o755)
        made = stack.enter_context(running(folder))
        bed = Crashing(SharedMemory(folder), made.process.pid, folder / "proxy.sock")
        for _ in range(2):
            bed.crash(signal.SIGSEGV)
            wait(lambda: bed.status()["proxy"]["state"] == "running", "another process of the workers")
        bed.crash(signal.SIGSEGV)
        assert made.process.wait(10) == 1
        assert "that is 3 in 10 minutes (proxy.crashes_max)" in made.log.read_text()


def test_without_the_understudy_the_proxy_ends_with_its_workers() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-crash-")))
        folder.chmod(0o755)
        made = stack.enter_context(running(folder))
        process_tree.kill(process_tree.one(made.process.pid, "xts-understudy"))
        wait(lambda: "xts-understudy: killed by SIGKILL" in made.log.read_text(), "a word about it")
        process_tree.kill(process_tree.one(made.process.pid, "xts-workers"))
        assert made.process.wait(10) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_process_dies_as_well(kind: str, idle: int = 100) -> None:
    """In the middle of claims, too. Nothing waits for ever for an answer of the dead one, listeners are there, and what
    was not being claimed goes on."""
    chance, there, ended = random.Random(7), 0, 0
    with crashing(kind) as bed, program(bed.place, idle) as on:
        assert on.does("use")["failures"] == []
        for number in range(2):
            with on.stopped():
                bed.crash(signal.SIGKILL)
                wait(lambda number=number: bed.status()["proxy"]["crashes"]["count"] > 2 * number, "the next process")
            time.sleep(chance.uniform(0.0, 0.03))  # until the one to be killed has done so much
            bed.crash(signal.SIGKILL)
            for connection in [bed.place.connect(port, 10) for port in on.ports]:
                connection.close()
            failures = on.does("use")["failures"]
            assert set(failures) <= {"ECONNRESET"}
            there, ended = there + idle, ended + len(failures)
            on.does("renew")
    assert ended < there / 2
