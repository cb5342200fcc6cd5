"""Several processes over a switch, whose ports put a frame that is not IP on queue 0, as network cards do."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from beds.lab_processes import attached, echo_server
from beds.metrics import scrape, value
from beds.running_agent import until
from xts_bpf.queue_addresses import of_queue
from xts_lab import card, topology
from xts_lab.lab import Lab
from xts_lab.wire import BRIDGE, Wire
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 4
FRAMES = 20
WAIT_S = 20.0
ATTACKER = Path(__file__).with_name("programs") / "queue_attacker.py"
OTHER_SECRET = ATTACKER.with_name("other_secret.py")
#: What processes say that have a queue of their own; queue 0 is the relay's, when that is needed.
OWN_QUEUES = [f"ok afxdp {n}" for n in range(1, QUEUES)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "switch", queues=QUEUES, relayed_max=None, metrics=True, wire=Wire.SWITCH)
    try:
        yield raised
    finally:
        assert not raised.down()


@pytest.fixture(autouse=True)
def at_rest(lab: Lab) -> None:
    """Every queue is proved, and free again: the kernel takes a moment after the end of a process."""
    until(lambda: all((one.used, one.lacking) == (0, 0) for one in list_queues(str(lab.endpoint))), WAIT_S)


def _xdp_packets(lab: Lab) -> dict[int, int]:
    """How many frames the XDP program of the device has seen on each queue."""
    shown = lab.run("dpu", ["ethtool", "-S", topology.DPU_XTS.interface], capture_output=True, text=True)
    return {int(n): int(count) for n, count in re.findall(r"rx_queue_(\d+)_xdp_packets: (\d+)", shown.stdout)}


def arrivals(lab: Lab, destination: bytes) -> set[int]:
    """On which queues of the device frames of ours arrive that a stranger on the host sends there. A few others, such
    as probes, come meanwhile."""
    before = _xdp_packets(lab)
    with lab.inside("host"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((topology.HOST_XTS.interface, 0))
        for _ in range(FRAMES):
            raw.send(destination + bytes.fromhex("0200000a0b01") + b"\x85\x5b" + bytes(60))
    after = _xdp_packets(lab)
    return {queue for queue in after if after[queue] - before[queue] >= FRAMES}


def test_each_process_has_its_queue(lab: Lab) -> None:
    """As on a cable: frames find the queue that they are for, both ways."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES)]
        kinds = sorted(one.says().split()[:2] for one in processes)
        assert kinds == [["ok", "afxdp"]] * (QUEUES - 1) + [["ok", "relay"]], "the last queue is the relay's"
        assert all(one.again().startswith("ok") for one in processes)


def test_lab_says_which_wire_it_has(lab: Lab) -> None:
    said = lab.run("host", ["xts-lab", "status", "--name", lab.name], capture_output=True, text=True)
    assert f"wire: {Wire.SWITCH.says}" in said.stdout
    assert set(lab.status()["namespaces"]) == {"host", "dpu", "net", "kern", "switch"}


def test_frames_follow_a_rule_of_a_card(lab: Lab) -> None:
    """The lab's own table: frames for an address arrive on the queue that its rule names, until it is taken away."""
    end = topology.DPU_XTS
    address = bytes.fromhex("0200000a0b03")
    assert arrivals(lab, address) == {0}
    card.ask(lab.card, end.interface, "insert", location=7, destination=address.hex(), queue=3)
    try:
        assert arrivals(lab, address) == {3}
        (rule,) = (one for one in card.ask(lab.card, end.interface, "rules") if one["location"] == 7)
        assert rule == {"location": 7, "destination": address.hex(), "queue": 3, "frames": FRAMES}
    finally:
        card.ask(lab.card, end.interface, "remove", location=7)
    assert arrivals(lab, address) == {0}


def test_card_answers_as_a_driver(lab: Lab) -> None:
    end = topology.DPU_XTS.interface
    insert = {"location": 9, "destination": "020000000901", "queue": 1}
    try:
        for driver, expected in (("veth", errno.EOPNOTSUPP), ("full", errno.ENOSPC)):
            card.behave(lab.card, end, card.DRIVERS[driver])
            with pytest.raises(OSError, match=r".+") as caught:
                card.ask(lab.card, end, "insert", **insert)
            assert caught.value.errno == expected
    finally:
        card.behave(lab.card, end, card.DRIVERS["mlx5"])
    card.ask(lab.card, end, "insert", **insert)
    with pytest.raises(OSError, match="no rule 10"):
        card.ask(lab.card, end, "remove", location=10)
    card.ask(lab.card, end, "remove", location=9)
    assert not [one for one in card.ask(lab.card, end, "rules") if one["location"] == 9]


@contextmanager
def third_port(lab: Lab) -> Iterator[socket.socket]:
    """What another port of the switch sees of our frames."""
    with topology.routing(lab.name, topology.SWITCH_ROLE) as route:
        route.link("add", ifname="third0", kind="veth", peer={"ifname": "third1"})
        bridge = topology.index_of(route, BRIDGE)
        for name in ("third0", "third1"):
            route.link("set", index=topology.index_of(route, name), state="up")
        route.link("set", index=topology.index_of(route, "third0"), master=bridge)
    try:
        with lab.inside(topology.SWITCH_ROLE):
            listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x855B))
        with listening:
            listening.bind(("third1", 0x855B))
            listening.setblocking(False)
            yield listening
    finally:
        with topology.routing(lab.name, topology.SWITCH_ROLE) as route:
            route.link("del", index=topology.index_of(route, "third0"))


def seen(listening: socket.socket) -> int:
    count = 0
    with suppress(BlockingIOError):
        while listening.recv(100):
            count += 1
    return count


# --- rules that are not there -----------------------------------------------------------------------------


def lacking(lab: Lab) -> int:
    """How many queues the agent does not give away, since frames do not find them."""
    (offered,) = list_queues(str(lab.endpoint))
    return offered.lacking


def doctor_on_queues(lab: Lab) -> str:
    shown = lab.run("host", ["xts", "doctor", "--json"], capture_output=True, text=True).stdout
    (found,) = (one["found"] for one in json.loads(shown)["checks"] if one["name"] == "queues of xts0")
    return str(found)


def status_of_proxy(lab: Lab) -> str:
    command = ["xts-proxy", "status", "--control", str(lab.control)]
    return str(lab.run("dpu", command, capture_output=True, text=True).stdout)


def log_of(lab: Lab) -> str:
    return lab.log_path("agent").read_text()


@contextmanager
def without_rules(lab: Lab, end: topology.End, driver: str) -> Iterator[None]:
    """The card of an end has lost its rules, and takes none, as this driver."""
    card.behave(lab.card, end.interface, card.DRIVERS[driver])
    card.ask(lab.card, end.interface, "lose")
    try:
        yield
    finally:
        card.behave(lab.card, end.interface, card.DRIVERS["mlx5"])
        until(lambda: not lacking(lab), WAIT_S)


@pytest.mark.parametrize("end", [topology.HOST_XTS, topology.DPU_XTS], ids=["host", "device"])
def test_rules_that_vanish(lab: Lab, end: topology.End) -> None:
    """Processes with a queue that frames do not find any more go to the relay, and the log says why."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES - 1)]
        assert sorted(one.says() for one in processes) == OWN_QUEUES
        with without_rules(lab, end, "veth"):
            until(lambda: lacking(lab) == QUEUES - 1, WAIT_S)
            assert "3 of 4 queues of xts0 are not used: frames for queue 1 of" in log_of(lab)
            assert "3 of 4 queues of xts0 are not used" in doctor_on_queues(lab)
            assert value(scrape(lab.metrics_path("agent")), "xts_agent_lacking_queues") == QUEUES - 1
            if end is topology.DPU_XTS:
                until(lambda: not value(scrape(lab.metrics_path("proxy")), "xts_interface_steered"), WAIT_S)
                assert "cannot be steered: its driver has no rules for received frames" in status_of_proxy(lab)
            for one in processes:
                until(lambda one=one: one.again() == "ok relay 0", WAIT_S)  # type: ignore[misc]
        assert f"each of the {QUEUES} queues has an address" in doctor_on_queues(lab)
        assert attached(lab, port, stack).says().startswith("ok afxdp")


def test_a_rule_that_another_tool_removes_is_put_back(lab: Lab) -> None:
    end = topology.HOST_XTS.interface
    before = {rule["destination"]: rule["queue"] for rule in card.ask(lab.card, end, "rules")}
    assert sorted(before.values()) == [1, 2, 3]
    card.ask(lab.card, end, "remove", location=card.ask(lab.card, end, "rules")[0]["location"])
    until(lambda: {rule["destination"]: rule["queue"] for rule in card.ask(lab.card, end, "rules")} == before, WAIT_S)
    assert "a rule of xts0 for received frames was gone, and is there again" in log_of(lab)


def test_a_rule_that_another_tool_takes_the_place_of(lab: Lab) -> None:
    """A driver replaces the rule at a location that is taken, as mlx5 does. Both rules are there in the end."""
    end = topology.HOST_XTS.interface
    before = {rule["destination"]: rule["queue"] for rule in card.ask(lab.card, end, "rules")}
    location = card.ask(lab.card, end, "rules")[-1]["location"]
    card.ask(lab.card, end, "insert", location=location, destination="020000000902", queue=2)
    try:
        both = before | {"020000000902": 2}
        until(lambda: {rule["destination"]: rule["queue"] for rule in card.ask(lab.card, end, "rules")} == both, WAIT_S)
    finally:
        card.ask(lab.card, end, "remove", location=location)


def test_no_frame_reaches_a_third_port(lab: Lab) -> None:
    """Both ends' addresses are known to the switch, so it floods none of their frames."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        third = stack.enter_context(third_port(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES)]
        assert all(one.says().startswith("ok") for one in processes)
        assert seen(third) == 0
        with lab.inside("host"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((topology.HOST_XTS.interface, 0))
            raw.send(bytes.fromhex("020000aaaaaa 020000bbbbbb 855b").ljust(60, b"\0"))
        until(lambda: seen(third) == 1, WAIT_S)  # it would have seen one


# --- restarts ---------------------------------------------------------------------------------------------


def test_agent_is_killed_and_another_goes_on(lab: Lab) -> None:
    """Processes keep their queue and its secret. The next agent finds both, and the next process is let in."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        before = attached(lab, port, stack)
        assert before.says() in OWN_QUEUES
        record = lab.record("agent")
        assert record
        os.kill(record.pid, signal.SIGKILL)
        until(lambda: not record.alive, WAIT_S)
        assert before.again() in OWN_QUEUES
        lab.start_agent()
        assert attached(lab, port, stack).says().startswith("ok")
        assert before.again() in OWN_QUEUES
        before.process.kill()
        # the new agent says GOODBYE for it, with its secret: so the proxy lets another process in on that queue
        until(lambda: all(one.used <= 1 for one in list_queues(str(lab.endpoint))), WAIT_S)
        assert [attached(lab, port, stack).says().split()[0] for _ in range(2)] == ["ok"] * 2


def test_proxy_is_killed_and_another_goes_on(lab: Lab) -> None:
    """It knows no secret of before, and takes them from the next HELLO."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        process = attached(lab, port, stack)
        assert process.says() in OWN_QUEUES
        record = lab.record("proxy")
        assert record
        os.kill(record.pid, signal.SIGKILL)
        until(lambda: not record.alive, WAIT_S)
        lab.start_proxy()
        until(lambda: process.again().startswith("ok"), WAIT_S)
    until(lambda: not lacking(lab), WAIT_S)


# --- attacks ----------------------------------------------------------------------------------------------


def stopped(lab: Lab) -> float:
    """Frames that the device has not let in: the XDP program, and the queue's owner."""
    text = scrape(lab.metrics_path("proxy"))
    steered = value(text, "xts_steer_frames_total", verdict="wrong_secret")
    return steered + value(text, "xts_queue_lost_frames_total", reason="foreign")


@pytest.mark.parametrize("frames", [50_000, pytest.param(10_000_000, marks=pytest.mark.long)])
def test_who_has_a_queue_is_not_heard_on_another(lab: Lab, frames: int) -> None:
    """A process writes with an AF_XDP socket of its own to the queues of others, in each form and with guesses of their
    secrets. Nothing is let in, and they go on."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        victims = [attached(lab, port, stack) for _ in range(QUEUES - 2)]
        said = [one.says() for one in victims]
        assert all(text in OWN_QUEUES for text in said)
        numbers = ",".join(text.split()[-1] for text in said)
        before = stopped(lab)
        command = [sys.executable, str(ATTACKER), str(lab.endpoint), numbers, str(frames)]
        attack = lab.run("host", command, capture_output=True, text=True, timeout=900)
        assert attack.returncode == 0, attack.stderr
        sent = int(attack.stdout.split()[-1])
        assert sent > frames * 0.5
        until(lambda: stopped(lab) - before == sent, WAIT_S)
        assert all(one.again().startswith("ok afxdp") for one in victims)


def test_a_secret_that_is_not_that_of_the_token(lab: Lab) -> None:
    """The link is refused: nobody opens it with a secret that the agent does not know."""
    before = lab.log_path("proxy").read_text()
    done = lab.run("host", [sys.executable, str(OTHER_SECRET), str(lab.endpoint)], capture_output=True, text=True)
    assert done.stdout == "sent\n", done.stderr
    until(lambda: "HELLO refused: its token belongs to another key" in lab.log_path("proxy").read_text()[len(before) :])


# --- what others do to the wire ---------------------------------------------------------------------------


def test_fewer_queues_are_refused_while_processes_use_them(lab: Lab) -> None:
    """By the kernel, for an AF_XDP socket is bound to each. Nobody notices."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES - 1)]
        assert sorted(one.says() for one in processes) == OWN_QUEUES
        for end in (topology.HOST_XTS, topology.DPU_XTS):
            fewer = ["ethtool", "-L", end.interface, "rx", "2", "tx", "2"]
            refused = lab.run(end.role, fewer, capture_output=True, text=True)
            assert refused.returncode
            assert "AF_XDP" in refused.stderr
        assert sorted(one.again() for one in processes) == OWN_QUEUES


def test_rules_that_a_driver_loses_are_put_back(lab: Lab) -> None:
    """As some do when the number of queues changes. Frames in between are lost, and processes attach again."""
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES - 1)]
        assert sorted(one.says() for one in processes) == OWN_QUEUES
        for end in (topology.HOST_XTS, topology.DPU_XTS):
            card.ask(lab.card, end.interface, "lose")
            until(lambda end=end: len(card.ask(lab.card, end.interface, "rules")) == QUEUES - 1, WAIT_S)  # type: ignore[misc]
        for one in processes:
            until(lambda one=one: one.again().startswith("ok"), WAIT_S)  # type: ignore[misc]


def test_an_address_that_another_station_uses_too(lab: Lab) -> None:
    """The switch believes whoever was the last to send from it. The device announces its addresses again and again."""
    device = bytes.fromhex(topology.mac_address(lab.name, topology.DPU_XTS).replace(":", ""))
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        process = attached(lab, port, stack)
        assert process.says() in OWN_QUEUES
        third = stack.enter_context(third_port(lab))
        with lab.inside(topology.SWITCH_ROLE):
            for number in range(QUEUES):
                frame = bytes.fromhex("0180c200000e") + of_queue(device, number) + b"\x85\x5b"
                third.send(frame.ljust(60, b"\0"))
        until(lambda: process.again().startswith("ok"), WAIT_S)
        until(lambda: not lacking(lab), WAIT_S)
        assert attached(lab, port, stack).says().startswith("ok")
