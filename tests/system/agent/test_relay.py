"""More processes than queues: the agent's relay serves them (PROTOCOL.md, "Relays"), on AF_XDP."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds import process_tree
from beds.lab import raise_or_skip
from beds.ready import readable
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 4
LINE_S = 60.0
ECHO = """
import asyncio

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    print("closed", flush=True)
    writer.close()

async def main():
    server = await asyncio.start_server(echo, "198.18.0.2", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
#: Forks so many processes, each of which connects and has its own bytes echoed: at once, and again when told.
MANY = """
import os, sys
import xts_socket as socket

count, port = int(sys.argv[1]), int(sys.argv[2])
results, told = os.pipe()
go, tell = os.pipe()

def exchange(s, number):
    text = b"%06d" % number * 5000
    s.sendall(text)
    got = b""
    while len(got) < len(text):
        more = s.recv(65536)
        assert more, "closed"
        got += more
    assert got == text

def one(number):
    try:
        with socket.create_connection(("198.18.0.2", port), 50) as s:
            for _ in range(3):
                exchange(s, number)
            os.write(told, socket.info().queue_kind.encode() + b"\\n")
            os.read(go, 1)
            exchange(s, number)
            os.write(told, b"again\\n")
    except BaseException as error:
        os.write(told, repr(error).encode() + b"\\n")
    os._exit(0)

for number in range(count):
    if os.fork() == 0:
        os.close(tell)
        one(number)
os.close(told)
lines = os.fdopen(results)
for _ in range(2 * count):
    print(lines.readline(), end="", flush=True)
    if _ == count - 1:
        sys.stdin.readline()
        os.close(tell)
"""
#: Holds a queue of its own until told to end.
HOLDER = """
import sys
import xts_socket as socket
with socket.create_server(("198.18.0.1", 0)):
    print(socket.info().queue_kind, flush=True)
    sys.stdin.readline()
"""
#: Connects, has bytes echoed with each line it is given, and says how that went.
CLIENT = """
import sys
import xts_socket as socket

def connect():
    return socket.create_connection(("198.18.0.2", int(sys.argv[1])), 20)

s = connect()
print(socket.info().queue_kind, flush=True)
for line in sys.stdin:
    try:
        if line == "connect\\n":
            s.close()
            s = connect()
        s.sendall(line.encode())
        assert s.recv(len(line), socket.MSG_WAITALL).decode() == line
        print("echoed", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
#: Attaches without the library, opens its link, and sends what no library would.
HOSTILE = """
import itertools, os, select, sys
from xts_messages.wire import codec
from xts_messages.attaching.attach import attach

a = attach(os.environ["XTS_ENDPOINT"])
print(a.relayed, flush=True)

def made(name, **fields):
    payload = fields.pop("payload", b"")
    number = fields.pop("id", 0)
    return codec.encode(codec.Frame(name, fields, payload=payload, id=number, destination=a.queue.peer_mac,
                                    source=a.queue.local_mac))

def hello(epoch):
    return made("XTS_LINK_HELLO", version=1, frame_window=16, largest_message=16384, epoch=epoch, pid=1)

def opened(epoch):
    head = made("XTS_LINK_FRAME_ACK")
    a.queue.send(head[:14] + bytes([23]) + bytes(9) + a.token)
    a.queue.send(hello(epoch))

def drain():
    while (frame := a.queue.receive()) is not None:
        frame.recycle()

others = [int(number) for number in sys.argv[1].split(",")]
opened(a.epoch + 1)
for number in others:
    for inner in (hello(a.epoch), made("XTS_LINK_GOODBYE", epoch=a.epoch)):
        a.queue.send(made("XTS_RELAY_CARRIED", id=number, payload=inner))
        drain()
a.queue.send(made("XTS_LINK_BUNDLE", payload=b"\\0\\x20" + bytes(32)))
a.queue.send(b"short")
print("forged", flush=True)
sys.stdin.readline()
while True:  # a HELLO may be lost
    opened(a.epoch)
    try:
        if codec.decode(bytes(a.queue.wait(500))).name == "XTS_LINK_HELLO_ACK":
            break
    except TimeoutError:
        continue
# It never reads the answers. One PING at a time: the proxy ends, without a word, who has more frames on their way than
# its window.
for i in itertools.count():
    try:
        a.queue.send(made("XTS_LINK_PING", token=i))
    except OSError:
        pass
    if select.select([a.fileno()], [], [], 0.02)[0]:
        print("ended", flush=True)
        break
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "relay", queues=QUEUES, relayed_max=256)
    try:
        yield raised
    finally:
        assert not raised.down()


def channels(lab: Lab) -> list[dict[str, Any]]:
    status = control_socket.ask(str(Path(lab.directory) / "proxy.sock"), control_socket.Question(ask="status"))
    return list(status["channels"])


def relayed(lab: Lab) -> list[dict[str, Any]]:
    return [channel for channel in channels(lab) if channel["relayed"]]


def wait(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@contextlib.contextmanager
def program(lab: Lab, script: str, *arguments: str, role: str = "host") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *arguments]
    with lab.popen(role, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next one that it says; of what follows nothing is read, for select() would not see it."""
    assert process.stdout
    said = b""
    while not said.endswith(b"\n"):
        assert readable(process.stdout, LINE_S), f"it says no more than {said!r}"
        if not (more := os.read(process.stdout.fileno(), 1)):
            break
        said += more
    return said.decode().strip()


def tell(process: subprocess.Popen[str], text: str = "") -> None:
    assert process.stdin
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


@pytest.fixture
def echo(lab: Lab) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in the network, and its port."""
    with program(lab, ECHO, role="net") as process:
        yield process, line(process)


@pytest.fixture
def full(lab: Lab) -> Iterator[None]:
    """All queues are in use: whoever attaches next is relayed."""
    with contextlib.ExitStack() as held:
        holders = [held.enter_context(program(lab, HOLDER)) for _ in range(QUEUES - 1)]
        assert [line(holder) for holder in holders] == ["afxdp"] * (QUEUES - 1)
        yield


def relay_pid(lab: Lab) -> int:
    record = lab.record("agent")
    assert record
    return process_tree.one(record.pid, "xts-relay")


def test_many_processes_on_few_queues(lab: Lab, echo: tuple[subprocess.Popen[str], str]) -> None:
    count = 200
    with program(lab, MANY, str(count), echo[1]) as many:
        kinds = Counter(line(many) for _ in range(count))
        assert kinds == {"afxdp": QUEUES - 1, "relay": count - QUEUES + 1}
        assert len({channel["relayed"] for channel in relayed(lab)}) == count - QUEUES + 1
        listed = lab.run("host", ["xts", "status"], capture_output=True, text=True).stdout
        assert len(re.findall(r" relay xts0 0 \(\d+\) ", listed)) == count - QUEUES + 1
        shown = json.loads(lab.run("host", ["xts", "status", "--json"], capture_output=True, text=True).stdout)
        of_relay = [process for process in shown["processes"] if process["relayed"] is not None]
        assert {process["relayed"] for process in of_relay} == {channel["relayed"] for channel in relayed(lab)}
        assert {(process["queue_kind"], process["interface"]) for process in of_relay} == {("relay", "xts0")}
        tell(many)
        assert Counter(line(many) for _ in range(count)) == {"again": count}
    wait(lambda: not relayed(lab), "their channels are freed")


def test_the_relay_is_confined(lab: Lab) -> None:
    """Its system calls are filtered (which: test_proxy_processes.py), and it has no capability."""
    told = Path(f"/proc/{relay_pid(lab)}/status").read_text()
    found = dict(row.split(":\t", 1) for row in told.splitlines())
    assert (found["Seccomp"], found["NoNewPrivs"], int(found["CapPrm"], 16)) == ("2", "1", 0)


@pytest.mark.usefixtures("full")
def test_the_death_of_a_process_is_told_at_once(lab: Lab, echo: tuple[subprocess.Popen[str], str]) -> None:
    server, port = echo
    with program(lab, CLIENT, port) as other, program(lab, CLIENT, port) as client:
        assert [line(other), line(client)] == ["relay", "relay"]
        client.kill()
        assert line(server) == "closed"
        wait(lambda: len(relayed(lab)) == 1, "its channel is freed")
        tell(other, "still there")
        assert line(other) == "echoed"


@pytest.mark.usefixtures("full")
def test_the_death_of_the_relay_is_an_error_and_another_comes(
    lab: Lab, echo: tuple[subprocess.Popen[str], str]
) -> None:
    with program(lab, CLIENT, echo[1]) as client:
        assert line(client) == "relay"
        killed = relay_pid(lab)
        os.kill(killed, signal.SIGKILL)
        tell(client, "lost")
        assert int(line(client)) in (errno.ECONNRESET, errno.ENETDOWN)
        tell(client, "connect")
        assert line(client) == "echoed"
        assert relay_pid(lab) != killed


@pytest.mark.usefixtures("full")
def test_a_program_is_told_that_it_was_relayed(lab: Lab, echo: tuple[subprocess.Popen[str], str]) -> None:
    script = f"import socket; socket.create_connection(('198.18.0.2', {echo[1]}))"
    done = lab.run("host", ["xts", "run", "-v", "--", sys.executable, "-c", script], capture_output=True, text=True)
    assert "over the agent's relay, as no queue was free" in done.stderr


@pytest.mark.usefixtures("full")
def test_doctor_says_that_it_was_relayed(lab: Lab, echo: tuple[subprocess.Popen[str], str]) -> None:
    with program(lab, CLIENT, echo[1]) as client:
        assert line(client) == "relay"
        done = lab.run("host", ["xts", "doctor", "--json"], capture_output=True, text=True)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["attach"]["level"] == found["processes"]["level"] == "warn"
    assert "relay queue 0 of xts0" in found["attach"]["found"]
    assert found["processes"]["found"] == (
        f"xts0: {QUEUES - 1} with one of {QUEUES - 1} queues, 2 behind the relay, which serves 256"
    )


@pytest.mark.usefixtures("full")
def test_nobody_speaks_for_another(lab: Lab, echo: tuple[subprocess.Popen[str], str]) -> None:
    with program(lab, CLIENT, echo[1]) as other:
        assert line(other) == "relay"
        numbers = ",".join(str(channel["relayed"]) for channel in relayed(lab))
        with program(lab, HOSTILE, numbers + ",77,16777214") as hostile:
            mine = int(line(hostile))
            assert line(hostile) == "forged"
            tell(other, "first")
            assert line(other) == "echoed"
            assert mine not in {c["relayed"] for c in relayed(lab) if c["link"] == "up"}
            tell(hostile)
            assert line(hostile) == "ended"
            tell(other, "second")
            assert line(other) == "echoed"
    log = Path(lab.log_path("agent")).read_text()
    forged = 2 * (numbers.count(",") + 3) + 2 + 1  # and the HELLO of an epoch that it was not given
    assert f"relayed process {mine}: {os.strerror(errno.EPROTO)}; dropped frames: {forged}" in log


def test_a_relay_needs_the_relays_token(lab: Lab) -> None:
    """Who has a queue of its own opens no channels behind it."""
    script = HOSTILE.split("others =", maxsplit=1)[0] + (
        "sys.stdout.flush()\n"
        "import xts_messages.wire.wire_table as table\n"
        "head = made('XTS_LINK_FRAME_ACK')\n"
        "a.queue.send(head[:14] + bytes([23]) + bytes(9) + a.token)\n"
        "a.queue.send(made('XTS_LINK_HELLO', version=1, frame_window=16, largest_message=16384, epoch=a.epoch, pid=1,"
        " features=table.FEATURES['RELAY'][0]))\n"
        "frame = a.queue.wait(5000)\n"
        "print(codec.decode(bytes(frame)).error, flush=True)\n"
    )
    with program(lab, script) as process:
        assert line(process) == "0"
        assert int(line(process)) == errno.EKEYREJECTED
