"""The interface to the device is removed and made again, or loses its XDP program: what programs of the host, `xts
doctor` and metrics say meanwhile, and that all is served again afterwards, with and without a relay."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.echo_server import ECHO
from beds.lab import raise_or_skip
from beds.lab_cable import put_in, set_link, state_of, take_out
from beds.metrics import scrape
from beds.operated_proxy import wait
from beds.ready import readable
from beds.transfer import TRANSFER
from xts_bpf.program import SteerProgram
from xts_lab import topology
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S = 20.0  # generous: the machine may be busy
QUEUES = 2  # one of them is the relay's
HOST, DEVICE = topology.HOST_XTS, topology.DPU_XTS

#: Connects, echoes, says by which kind of queue; then, at each line, the same on a new connection.
CLIENT = """
import sys, xts_socket
while True:
    try:
        with xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=10) as sock:
            sock.sendall(b"hello")
            print("ok" if sock.recv(5) == b"hello" else "?", xts_socket.info().queue_kind, flush=True)
            if not sys.stdin.readline():
                break
    except OSError as error:
        print(error, flush=True)
        if not sys.stdin.readline():
            break
"""
#: One connection, over which each line is echoed; says so for each.
LASTING = """
import sys, xts_socket
with xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=10) as sock:
    for line in sys.stdin:
        try:
            sock.sendall(b"hello")
            print("kept" if sock.recv(5) == b"hello" else "?", flush=True)
        except OSError as error:
            print(error, flush=True)
"""
#: Asks for an answer that comes from the network 0.3 s later, by which time the interface is down.
LATER = """
import sys, xts_socket
with xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=10) as sock:
    for line in sys.stdin:
        sock.sendall(b"later")
        print("asked", flush=True)
        print("kept" if sock.recv(5) == b"later" else "?", flush=True)
"""


@pytest.fixture(scope="module")
def one_lab() -> Iterator[Lab]:
    lab = raise_or_skip("afxdp", "if", QUEUES, relayed_max=None, metrics=True)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture
def lab(one_lab: Lab) -> Iterator[Lab]:
    yield one_lab
    for program in ("proxy", "agent"):
        sys.stderr.write(one_lab.tail(program, 20))  # for who reads about a failure


@pytest.fixture(scope="module")
def port(one_lab: Lab) -> Iterator[str]:
    process = one_lab.popen("net", [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


class Client:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def said(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def ask(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("again\n")
        self._process.stdin.flush()

    def again(self) -> str:
        self.ask()
        return self.said()

    def says_nothing(self, seconds: float) -> bool:
        return not readable(self._process.stdout, seconds)


@contextlib.contextmanager
def client(lab: Lab, port: str, script: str = CLIENT) -> Iterator[Client]:
    process = lab.popen(
        "host", [sys.executable, "-c", script, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Client(process)
    finally:
        process.kill()
        process.communicate()


def doctor(lab: Lab) -> dict[str, dict[str, Any]]:
    done = lab.run("host", ["xts", "doctor", "--json"], capture_output=True, text=True, timeout=60)
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def interface(lab: Lab) -> dict[str, Any]:
    return dict(control_socket.ask(str(lab.control), control_socket.Question("status", False))["interface"])


def serves(lab: Lab, who: str) -> str:
    text = scrape(lab.metrics_path(who))
    return next(line for line in text.splitlines() if line.startswith(("xts_interface_s", "xts_agent_interface_s")))


def test_the_cable_is_taken_out_and_put_in(lab: Lab, port: str) -> None:
    with client(lab, port) as own, client(lab, port) as relayed:
        assert {own.said(), relayed.said()} == {"ok afxdp", "ok relay"}
        before = state_of(lab, HOST)
        addresses = take_out(lab)
        gone = "xts0 is not there: it was removed, or moved to another network namespace"
        wait(lambda: gone in own.again(), "reason", BACK_S)
        wait(lambda: gone in relayed.again(), "reason", BACK_S)
        found = doctor(lab)
        assert (found["queues of xts0"]["level"], found["queues of xts0"]["found"]) == ("fail", gone)
        assert gone in found["attach"]["found"]
        wait(lambda: "xtsd0 is not there" in interface(lab)["problem"], "problem", BACK_S)
        shown = lab.run("dpu", ["xts-proxy", "status", "--control", str(lab.control)], capture_output=True, text=True)
        assert "NO HOST CAN ATTACH: xtsd0 is not there" in shown.stdout
        assert serves(lab, "proxy").endswith(" 0.0")
        assert serves(lab, "agent").endswith(" 0.0")
        put_in(lab, addresses)
        wait(lambda: own.again().startswith("ok"), "service", BACK_S)
        wait(lambda: relayed.again().startswith("ok"), "service", BACK_S)
        after = state_of(lab, HOST)
        assert before and after and before.program_id == after.program_id
    found = doctor(lab)
    assert found["queues of xts0"]["level"] == found["attach"]["level"] == "ok"
    assert interface(lab)["problem"] == ""
    assert serves(lab, "proxy").endswith(" 1.0")
    assert serves(lab, "agent").endswith(" 1.0")


@pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])
def test_the_program_is_taken_off(lab: Lab, port: str, end: topology.End) -> None:
    before = state_of(lab, end)
    with client(lab, port) as own:
        assert own.said().startswith("ok")
        set_link(lab, end, xdp_fd=-1)
        wait(lambda: state_of(lab, end) == before, "the program", BACK_S)
        wait(lambda: own.again().startswith("ok"), "service", BACK_S)
    found = doctor(lab)["queues of xts0"]
    assert found["level"] == "ok" and "the agent's" in found["found"]


def test_the_doctor_finds_another_program(lab: Lab, port: str) -> None:
    with lab.inside("host"):
        other = SteerProgram("xts0", bytes(6))
    try:
        words = f"xts0 has XDP program {other.program_id} in place of ours, and its queues carry nothing"
        wait(lambda: words in doctor(lab)["queues of xts0"]["found"], "words of the doctor", BACK_S)
        with client(lab, port) as refused:
            assert words in refused.said()
    finally:
        with lab.inside("host"):
            other.close()
    with client(lab, port) as served:
        if not served.said().startswith("ok"):
            wait(lambda: served.again().startswith("ok"), "service", BACK_S)


@pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])
def test_the_mtu_is_lowered(lab: Lab, port: str, end: topology.End) -> None:
    with client(lab, port) as own:
        assert own.said().startswith("ok")
        for mtu in (9000, 1500, 1280):
            set_link(lab, end, mtu=mtu)
            wait(lambda: own.again().startswith("ok"), "service", BACK_S)
        set_link(lab, end, mtu=1279)
        if end is HOST:
            wait(lambda: "the MTU of xts0 is 1279: 1280 or more is needed" in own.again(), "reason", BACK_S)
        else:
            wait(lambda: "the MTU of xtsd0 is 1279: 1280" in interface(lab)["problem"], "problem", BACK_S)
        set_link(lab, end, mtu=topology.XTS_MTU)
        wait(lambda: own.again().startswith("ok"), "service", BACK_S)


@pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])
def test_an_interface_that_is_down_for_a_moment(lab: Lab, port: str, end: topology.End) -> None:
    """What is sent meanwhile waits for it, at either end of the cable, and behind a relay, too."""
    with client(lab, port, LASTING) as own, client(lab, port, LASTING) as relayed:
        assert own.again() == relayed.again() == "kept"
        set_link(lab, end, state="down")
        own.ask()
        relayed.ask()
        assert own.says_nothing(0.3) and relayed.says_nothing(0.0)
        set_link(lab, end, state="up")
        assert own.said() == relayed.said() == "kept"
        assert own.again() == relayed.again() == "kept"


@pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])
def test_what_the_device_sends_to_an_interface_that_is_down(lab: Lab, port: str, end: topology.End) -> None:
    """What arrives from the network meanwhile, for whom it is, comes when the interface is there again."""
    with client(lab, port, LATER) as own, client(lab, port, LATER) as relayed:
        own.ask()
        relayed.ask()
        assert own.said() == relayed.said() == "asked"
        set_link(lab, end, state="down")
        assert own.says_nothing(0.5) and relayed.says_nothing(0.0)
        set_link(lab, end, state="up")
        assert own.said() == relayed.said() == "kept"


@pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])
def test_a_transfer_goes_on_over_outages(lab: Lab, port: str, end: topology.End) -> None:
    """Both ways at full rate, with a queue of one's own and behind a relay: no byte is lost, and none comes twice."""
    with client(lab, port, TRANSFER) as own, client(lab, port, TRANSFER) as relayed:
        assert own.said() == relayed.said() == "begun"
        for _ in range(3):
            set_link(lab, end, state="down")
            time.sleep(0.05)
            set_link(lab, end, state="up")
            time.sleep(0.05)
        own.ask()
        relayed.ask()
        assert own.said() == relayed.said() == "as it was sent"
