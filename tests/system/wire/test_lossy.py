"""Whole programs over a switch whose cables lose frames, one by one and several in a row, bring some twice, later, in
another order, or no faster than a slow port: with `reliable` nothing of that is seen above, every byte arrives, and the
figures tell of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.lab import raise_or_skip
from beds.lab_processes import attached, echo_server, echoed_whole
from beds.metrics import scrape, value
from beds.running_agent import until
from xts_lab.card import Cable, ask
from xts_lab.lab import Lab
from xts_lab.slow_cable import Pace
from xts_lab.wire import PORTS, Wire, set_cables, set_paces
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 3
WAIT_S = 20.0

#: Says how many bytes each connection has brought, and whether it ended by FIN.
SINK = """
import socket

with socket.create_server(("198.18.0.2", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        with listener.accept()[0] as s:
            got = 0
            try:
                while piece := s.recv(1 << 16):
                    got += len(piece)
                print(got, flush=True)
            except ConnectionResetError:
                print("reset", flush=True)
"""

#: Sends and exits at once.
LAST_WORDS = """
import sys
import xts_socket

s = xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=30)
s.sendall(b"x" * int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip(
        "afxdp", "lossy", queues=QUEUES, relayed_max=None, metrics=True, wire=Wire.SWITCH, reliable=True
    )
    try:
        yield raised
    finally:
        assert not raised.down()


def make_good(lab: Lab) -> None:
    set_cables(lab.card, Cable())
    set_paces(lab.card, Pace())


@pytest.fixture(autouse=True)
def at_rest(lab: Lab) -> Iterator[None]:
    """Every queue is proved, and free again; cables are good before and after."""
    make_good(lab)
    until(lambda: all((one.used, one.lacking) == (0, 0) for one in list_queues(str(lab.endpoint))), WAIT_S)
    yield
    make_good(lab)


def figures(lab: Lab, *names: str) -> dict[str, float]:
    found = scrape(lab.metrics_path("proxy"))
    return {name: sum(value(found, f"xts_queue_{name}_total", queue=str(n)) for n in range(QUEUES)) for name in names}


WIRES = {
    "1 %": Cable(10_000),
    "5 %": Cable(50_000),
    "bursts": Cable(20_000, burst=5),
    "twice": Cable(5_000, duplicate_ppm=50_000),
}


@pytest.mark.parametrize(
    "cable", [pytest.param(c, marks=[] if n == "5 %" else [pytest.mark.long], id=n) for n, c in WIRES.items()]
)
def test_every_byte_arrives(lab: Lab, cable: Cable) -> None:
    before = figures(lab, "repeated_frames", "violations")
    with echo_server(lab) as port:
        set_cables(lab.card, cable)
        echoed_whole(lab, port)
    after = figures(lab, "repeated_frames", "violations")
    assert after["repeated_frames"] > before["repeated_frames"]
    assert after["violations"] == before["violations"]


def way(lab: Lab) -> dict[str, int]:
    """What has become of frames on the wire, both ways."""
    both = [ask(lab.card, end.interface, "counted") for end in PORTS]
    return {name: sum(counted[name] for counted in both) for name in both[0]}


PACES = {
    "delay": (Pace(delay_us=5000), Cable()),
    "reordering": (Pace(delay_us=50, reorder_ppm=20_000), Cable()),
    "reordering and loss": (Pace(delay_us=500, reorder_ppm=20_000), Cable(10_000)),
    "slow port": (Pace(delay_us=50, rate_mbit=300, room=10), Cable()),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(n, marks=[] if n == "reordering and loss" else [pytest.mark.long]) for n in PACES]
)
def test_every_byte_arrives_over_a_slow_wire(lab: Lab, kind: str) -> None:
    """And nobody is said to have broken the rules."""
    before, violations = way(lab), figures(lab, "violations")
    pace, cable = PACES[kind]
    with echo_server(lab) as port:
        set_cables(lab.card, cable)
        set_paces(lab.card, pace)
        echoed_whole(lab, port)
    after = way(lab)
    assert after["passed"] > before["passed"], "the frames have gone the slow way"
    assert (after["lost"] > before["lost"]) == bool(cable.loss_ppm)
    assert figures(lab, "violations") == violations


def test_what_a_process_sends_before_it_exits_arrives(lab: Lab) -> None:
    size = 200_000
    with lab.popen("net", [sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            port = server.stdout.readline().strip()
            set_cables(lab.card, Cable(200_000))
            for _ in range(4):
                done = lab.run("host", [sys.executable, "-c", LAST_WORDS, port, str(size)], timeout=30)
                assert done.returncode == 0
                assert server.stdout.readline().strip() == str(size)
        finally:
            server.kill()


def test_operators_can_see_it(lab: Lab) -> None:
    set_cables(lab.card, Cable(50_000))
    with ExitStack() as stack:
        process = attached(lab, stack.enter_context(echo_server(lab)), stack)
        assert process.says().startswith("ok")
        command = [sys.executable, "-m", "xts_proxy", "status", "--control", str(lab.control)]
        shown = lab.run("dpu", command, capture_output=True, text=True, timeout=20)
        assert shown.returncode == 0, shown.stderr
        assert "lost frames are repeated: " in shown.stdout and "FRAMES WERE LOST" not in shown.stdout


def test_processes_of_all_kinds_attach_and_talk(lab: Lab) -> None:
    """Those with a queue of their own, and those behind the relay, whose trunk is over the same wire."""
    set_cables(lab.card, Cable(30_000))
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES)]
        kinds = sorted(one.says().split()[:2] for one in processes)
        assert kinds == [["ok", "afxdp"]] * (QUEUES - 1) + [["ok", "relay"]]
        for _ in range(2):
            assert all(one.again().startswith("ok") for one in processes)
