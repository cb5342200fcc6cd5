"""What goes wrong around a relay, and who is told: the proxy dies, or serves no more processes; the relay stands still;
a process behind it reads nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds import process_tree
from beds.lab import raise_or_skip
from beds.running_agent import closed
from system.agent.test_relay import CLIENT, ECHO, HOLDER, line, program, relay_pid, relayed, tell, wait
from xts_lab.lab import Lab
from xts_messages.attaching.attach import list_attachments, list_queues
from xts_messages.wire import wire_table as table

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


@pytest.fixture(autouse=True)
def at_rest(lab: Lab) -> None:
    """The queue is free again: the kernel takes a moment after the end of a process."""
    wait(lambda: not any(one.used for one in list_queues(str(lab.endpoint))), "a free queue")


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


def has_ended(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def has_memory(pid: int) -> bool:
    """Does it have memory that it shares?"""
    found = False
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found |= "memfd:" in str(fd.readlink())
    return found


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


def test_a_proxy_that_stands_still_is_not_dead_behind_a_relay(lab: Lab, echo: str) -> None:
    """How long it may be silent is a setting of each process (XTS_DEAD_MS, 3 s). The relay gave it up after 2 s."""
    with program(lab, HOLDER) as holder:
        assert line(holder) == "afxdp"
        await_relay(lab, echo)
        with program(lab, CLIENT, echo) as client:
            assert line(client) == "relay"
            record = lab.record("proxy")
            assert record
            workers = process_tree.one(record.pid, "xts-workers")
            process_tree.stop(workers)
            try:
                tell(client, "still there")
                time.sleep(2.2)
            finally:
                os.kill(workers, signal.SIGCONT)
            assert line(client) == "echoed"


def test_a_relay_that_has_not_heard_of_the_next_proxy(lab: Lab, echo: str) -> None:
    """The first process that it is given to is served by the next relay, and hears nothing of that."""
    with program(lab, HOLDER) as holder:
        assert line(holder) == "afxdp"
        await_relay(lab, echo)
        stopped = relay_pid(lab)
        os.kill(stopped, signal.SIGSTOP)
        try:
            lab.stop_program("proxy")
            start_proxy(lab)
            with program(lab, TRIES, echo) as process:
                wait(lambda: has_memory(process.pid), "it has a place at the relay")
                os.kill(stopped, signal.SIGCONT)
                assert line(process) == "relay"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)


def end_agent(lab: Lab, number: int) -> None:
    record = lab.record("agent")
    assert record
    os.kill(record.pid, number)
    wait(lambda: not record.alive, "the agent has ended")


def places(lab: Lab) -> dict[int, int]:
    """Who is behind the relay, as the agent knows it: processes by the numbers of their places."""
    return {one.relayed: one.pid for one in closed(list_attachments(str(lab.endpoint))) if one.relayed}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_relay_outlives_agents(lab: Lab, echo: str, number: int) -> None:
    """The next agent goes on with it: connections, places and numbers are as they were."""
    with program(lab, HOLDER) as holder:
        assert line(holder) == "afxdp"
        await_relay(lab, echo)
        with program(lab, CLIENT, echo) as client, program(lab, CLIENT, echo) as leaves:
            assert [line(client), line(leaves)] == ["relay", "relay"]
            relay, before = relay_pid(lab), places(lab)
            end_agent(lab, number)
            tell(client, "without an agent")
            assert line(client) == "echoed"
            leaves.kill()
            leaves.wait()
            wait(lambda: len(relayed(lab)) == 1, "the proxy hears of the end of the other")
            lab.start_agent()
            tell(client, "with another")
            assert line(client) == "echoed"
            assert places(lab) == {place: pid for place, pid in before.items() if pid == client.pid}
            with program(lab, CLIENT, echo) as later:
                assert line(later) == "relay"
                assert has_ended(relay) is False and max(places(lab)) > max(before), "a new number of the same relay"
            wait(lambda: len(places(lab)) == 1, "its place is free")
        wait(lambda: not places(lab), "all places are free")
        end_agent(lab, number)
        wait(lambda: has_ended(relay), "a relay without processes and agent ends")
        lab.start_agent()
        await_relay(lab, echo)


def test_a_relay_that_does_not_answer_is_left_alone(lab: Lab, echo: str) -> None:
    """It is stopped, say. It goes on with its processes later, and the next agent has its own."""
    with program(lab, HOLDER) as holder:
        assert line(holder) == "afxdp"
        await_relay(lab, echo)
        with program(lab, CLIENT, echo) as client:
            assert line(client) == "relay"
            relay = relay_pid(lab)
            os.kill(relay, signal.SIGSTOP)
            try:
                end_agent(lab, signal.SIGKILL)
                lab.start_agent()
            finally:
                os.kill(relay, signal.SIGCONT)
            tell(client, "still there")
            assert line(client) == "echoed"
        wait(lambda: has_ended(relay), "it ends with its last process")
        await_relay(lab, echo)
