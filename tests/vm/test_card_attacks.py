"""Attacks on the queue of a network card with zero copy at the host's end, where frames have the secret of their
process: in the machine of `tests/vm/run --nics`.

On a card the wire decides on which queue a frame arrives, and whoever can send from the host's interface can send what
a process might. Each frame is compared with the secret by the XDP program of the other end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice

import pytest
from beds.card_lab import MACS, ZERO_COPY, ZeroCopyLab, missing
from beds.lab import skip_without_lab
from beds.lab_processes import attached, echo_server
from beds.metrics import scrape, value
from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.queue_keeper import KEEPER, NOBODY
from beds.ready import readable
from beds.transfer import TRANSFER
from system.wire.programs.queue_attacker import frames
from xts_lab import topology
from xts_messages.attaching.attach import OfferedQueues, list_queues
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

FRAMES = 4000
LINE_S = 30.0 * SLOWER


@pytest.fixture(scope="module")
def lab() -> Iterator[ZeroCopyLab]:
    skip_without_lab("afxdp")
    if reason := missing():
        pytest.skip(reason)
    settings = {"queue": "afxdp", "relayed_max": 0, "reliable": True, "mtu": 1500, "metrics": True}
    made = ZeroCopyLab(f"t{os.getpid()}attacks", topology.HOST_XTS, **settings)
    made.up()
    try:
        wait(lambda: "proved by a frame" in offered(made).steering, "proof")  # before it there are no secrets
        wait(lambda: offered(made).copying.startswith(ZERO_COPY), "zero copy")
        yield made
    finally:
        assert not made.down()


def offered(lab: ZeroCopyLab) -> OfferedQueues:
    (found,) = list_queues(str(lab.endpoint))
    return found


def link(lab: ZeroCopyLab) -> str:
    """Of the only queue."""
    status = control_socket.ask(str(lab.control), control_socket.Question("status", False))
    (channel,) = status["channels"]
    return str(channel["link"] if isinstance(channel["link"], str) else channel["link_state"])


def stopped(lab: ZeroCopyLab) -> float:
    """Frames that the device has not let in."""
    text = scrape(lab.metrics_path("proxy"))
    return sum(value(text, "xts_steer_frames_total", verdict=how) for how in ("wrong_secret", "foreign", "malformed"))


def refused(lab: ZeroCopyLab) -> float:
    """The same, and a HELLO that has the secret and opens nothing for all that."""
    return stopped(lab) + lab.log_path("proxy").read_text().count("HELLO refused: ")


def test_a_raw_sender_is_not_heard(lab: ZeroCopyLab) -> None:
    """Frames of each form with the addresses of a process, and guesses of its secret, while it sends and receives."""
    host, device = (bytes.fromhex(MACS[end].replace(":", "")) for end in (topology.HOST_XTS, topology.DPU_XTS))
    made = frames(1, 0x0123456789ABCDEF, [0], host, device)
    with ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = [sys.executable, "-c", TRANSFER, str(port)]
        program = stack.enter_context(lab.popen("host", command, text=True, **pipes))
        stack.callback(program.kill)
        assert program.stdout and readable(program.stdout, LINE_S) and program.stdout.readline() == "begun\n"
        before = stopped(lab)
        with lab.inside("host"):
            raw = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        raw.bind((topology.HOST_XTS.interface, 0))
        for frame in islice(cycle(made), FRAMES):
            raw.send(frame)
        wait(lambda: stopped(lab) - before >= FRAMES, f"end of {FRAMES} frames", LINE_S)
        assert link(lab) == "up"
        assert program.communicate("\n", timeout=2 * LINE_S)[0] == "as it was sent\n", lab.tail("proxy")


def test_who_keeps_its_queue_says_nothing_with_it(lab: ZeroCopyLab) -> None:
    """Its attachment has ended, and with it all that it could open. When it goes, the next process has the queue."""
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        keeper = stack.enter_context(lab.popen("host", [sys.executable, "-c", NOBODY + KEEPER], text=True, **pipes))
        stack.callback(keeper.kill)
        assert keeper.stdin and keeper.stdout

        def line() -> str:
            assert readable(keeper.stdout, LINE_S)
            return str(keeper.stdout.readline().strip())

        def go_on() -> None:
            keeper.stdin.write("\n")
            keeper.stdin.flush()

        assert line() == "0"
        wait(lambda: link(lab) == "up", "link")
        go_on()
        wait(lambda: link(lab) != "up", "end of the link")
        before = refused(lab)
        go_on()
        assert line() == "said"
        wait(lambda: refused(lab) > before, "refusal of what it says")
        assert link(lab) != "up"
        keeper.kill()
        keeper.wait()
        port = stack.enter_context(echo_server(lab))
        wait(lambda: attached(lab, port, stack).says() == "ok afxdp 0", "next process")
