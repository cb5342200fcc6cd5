"""What goes wrong around a relay, and who is told: the proxy dies, or serves no more processes; the relay stands still;
a process behind it reads nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from system.agent.test_relay import CLIENT, ECHO, HOLDER, line, program, relay_pid, relayed, tell, wait
from xts_lab.lab import Lab
from xts_messages import wire_table as table

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 2  # one for processes, and the relay's
#: Connects and waits for bytes that never come: prints how that ends.
WAITS = """
import sys
import xts_socket as socket
with socket.create_connection(("198.18.0.2", int(sys.argv[1])), 20) as s:
    s.settimeout(None)
    print(socket.info().queue_kind, flush=True)
    try:
        print(s.recv(1), flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
#: Connects to a server that sends without end, reads once, and then nothing any more: it is stopped.
STOPS = """
import os, signal, sys
import xts_socket as socket
s = socket.create_connection(("198.18.0.2", int(sys.argv[1])), 20)
assert s.recv(1000)
print(socket.info().queue_kind, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
FLOOD = """
import socket
with socket.create_server(("198.18.0.2", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    sent = 0
    connection.settimeout(1)
    try:
        while True:
            sent += connection.send(bytes(65536))
    except TimeoutError:
        print("full", flush=True)
    listener.accept()
"""
#: Prints what becomes of a connection.
TRIES = """
import sys
import xts_socket as socket
try:
    with socket.create_connection(("198.18.0.2", int(sys.argv[1])), 20):
        print(socket.info().queue_kind, flush=True)
        sys.stdin.readline()
except OSError as error:
    print(error.errno, error, flush=True)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "faults", queues=QUEUES, relayed_max=8)
    try:
        yield raised
    finally:
        assert not raised.down()


@pytest.fixture
def echo(lab: Lab) -> Iterator[str]:
    """The port of a server in the network."""
    with program(lab, ECHO, role="net") as process:
        yield line(process)


@pytest.fixture
def full(lab: Lab) -> Iterator[None]:
    """The only queue is in use: whoever attaches next is relayed."""
    with program(lab, HOLDER) as holder:
        assert line(holder) == "afxdp"
        yield


def start_proxy(lab: Lab, keys: str = "") -> None:
    configuration = Path(lab.directory) / "proxy.toml"
    configuration.write_text(lab.proxy_configuration().replace("[proxy]\n", f"[proxy]\n{keys}\n", 1))
    lab.spawn("dpu", [sys.executable, "-m", "xts_proxy", "--config", str(configuration)], name="proxy", ready=True)


def await_relay(lab: Lab, port: str) -> None:
    """All queues are in use. After the end of a proxy the next relay comes a moment later than the next proxy."""

    def serves() -> bool:
        with program(lab, TRIES, port) as process:
            return line(process) == "relay"

    wait(serves, "there is a relay")
    wait(lambda: not relayed(lab), "its channel is freed")


def connects_again(client: subprocess.Popen[str]) -> bool:
    tell(client, "connect")
    return line(client) == "echoed"


def test_the_death_of_the_proxy_is_told_to_all_and_the_next_serves_them(lab: Lab, echo: str) -> None:
    with contextlib.ExitStack() as running:
        holder = running.enter_context(program(lab, HOLDER))
        assert line(holder) == "afxdp"
        await_relay(lab, echo)
        waiting = [running.enter_context(program(lab, WAITS, echo)) for _ in range(3)]
        client = running.enter_context(program(lab, CLIENT, echo))
        assert [line(process) for process in (*waiting, client)] == ["relay"] * 4
        record = lab.record("proxy")
        assert record
        os.kill(record.pid, signal.SIGKILL)
        for process in waiting:
            assert int(line(process)) in (errno.ECONNRESET, errno.ENETDOWN)
        start_proxy(lab)
        wait(lambda: connects_again(client), "it is served by the next proxy")
        assert len(relayed(lab)) == 1


@pytest.mark.usefixtures("full")
def test_a_process_too_many_for_the_proxy_is_told_why(lab: Lab, echo: str) -> None:
    lab.stop_program("proxy")
    start_proxy(lab, "relayed_max = 1")
    try:
        with contextlib.ExitStack() as running:
            await_relay(lab, echo)
            first = running.enter_context(program(lab, CLIENT, echo))
            assert line(first) == "relay"
            second = running.enter_context(program(lab, TRIES, echo))
            number, _, sentence = line(second).partition(" ")
            assert int(number) == errno.EUSERS
            assert table.REFUSALS["RELAYED"][2] in sentence
            tell(first, "still there")
            assert line(first) == "echoed"
    finally:
        lab.stop_program("proxy")
        start_proxy(lab)


@pytest.mark.usefixtures("full")
def test_who_reads_nothing_holds_up_nobody(lab: Lab, echo: str) -> None:
    await_relay(lab, echo)
    with contextlib.ExitStack() as running:
        flood = running.enter_context(program(lab, FLOOD, role="net"))
        port = line(flood)
        stops = running.enter_context(program(lab, STOPS, port))
        client = running.enter_context(program(lab, CLIENT, echo))
        assert [line(stops), line(client)] == ["relay", "relay"]
        assert line(flood) == "full", "it is full up to the server"
        for number in range(50):
            tell(client, f"{number} " * 500)
            assert line(client) == "echoed"
        assert len(relayed(lab)) == 2


def test_a_relay_that_stands_still(lab: Lab, echo: str) -> None:
    """Its processes are told; those with a queue of their own notice nothing; the agent answers; and it may go on."""
    with contextlib.ExitStack() as running:
        own = running.enter_context(program(lab, CLIENT, echo))
        assert line(own) == "afxdp"
        await_relay(lab, echo)
        client = running.enter_context(program(lab, CLIENT, echo))
        waiting = running.enter_context(program(lab, WAITS, echo))
        assert [line(client), line(waiting)] == ["relay", "relay"]
        stopped = relay_pid(lab)
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert int(line(waiting)) in (errno.ECONNRESET, errno.ENETDOWN)
            tell(own, "unhurt")
            assert line(own) == "echoed"
            refused = running.enter_context(program(lab, TRIES, echo))
            assert int(line(refused).split()[0]) in (errno.EUSERS, errno.ENETDOWN)
        finally:
            os.kill(stopped, signal.SIGCONT)
        wait(lambda: connects_again(client), "a relay serves it")
