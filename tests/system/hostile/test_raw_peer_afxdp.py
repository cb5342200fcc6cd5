"""A raw peer on the lab's queue interface: whatever it writes there, the proxy counts it and serves the others."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.lab import raise_or_skip
from beds.patience import SLOWER
from xts_lab.lab import Lab
from xts_lab.wire import Wire
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)
"""
CLIENT = """
import sys
import xts_socket as socket
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as s:
    for _ in range(100):
        s.sendall(b"x" * 1000)
        assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "raw", tokens=False)
    try:
        yield raised
    finally:
        assert not raised.down()


@pytest.fixture
def raw(lab: Lab) -> Iterator[socket.socket]:
    with lab.inside("host"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
        made.bind(("xts0", 0))
        yield made


def addresses(lab: Lab) -> tuple[bytes, bytes]:
    """The device's and the host's Ethernet addresses, as they stand in a frame from the host."""
    macs = []
    for role, interface in (("dpu", "xtsd0"), ("host", "xts0")):
        with lab.inside(role), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as looked_at:
            looked_at.bind((interface, 0))
            macs.append(looked_at.getsockname()[4])
    return macs[0], macs[1]


def channels(lab: Lab) -> list[dict[str, Any]]:
    status = control_socket.ask(str(Path(lab.directory) / "proxy.sock"), control_socket.Question(ask="status"))
    return list(status["channels"])


def total(lab: Lab, name: str) -> int:
    return sum(int(channel["link"][name]) for channel in channels(lab))


def wait(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 5 * SLOWER
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture(scope="module")
def echo_port(lab: Lab) -> Iterator[int]:
    server = lab.popen("net", ["python", "-c", ECHO, "198.18.0.2"], stdout=subprocess.PIPE, text=True)
    try:
        yield int(server.stdout.readline())
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()


def serves(lab: Lab, port: int) -> None:
    done = lab.run(
        "host", ["python", "-c", CLIENT, "198.18.0.2", str(port)], timeout=30 * SLOWER, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_messages_without_a_hello_are_dropped_and_counted(lab: Lab, raw: socket.socket, echo_port: int) -> None:
    device, host = addresses(lab)
    before = total(lab, "dropped_early")
    others = {
        f"XTS_LINK_{name}"
        for name in ("TOKEN", "HELLO", "HELLO_ACK", "GOODBYE", "OVER", "BUNDLE", "ARQ", "PART", "PROBE")
    }
    foreign = total(lab, "dropped_foreign")
    if lab.settings.wire is not Wire.CABLE:  # where queues are steered, this means something before a HELLO
        others |= {"XTS_LINK_HEADED"}
    names = [message.name for message in table.MESSAGES if message.name not in others]
    for name in [*names, "XTS_LINK_PROBE"]:
        raw.send(codec.encode(codec.Frame(name, destination=device, source=host)))
    wait(lambda: total(lab, "dropped_early") >= before + len(names), "not all were counted")
    if lab.settings.wire is Wire.CABLE:  # else an XDP program has taken it
        wait(lambda: total(lab, "dropped_foreign") > foreign, "a probe was not counted")
    serves(lab, echo_port)


#: A process without privilege sends other frames than messages through its queue, and a message in the end.
OTHERS = """
import os, sys
from xts_messages.attaching.attach import attach
os.setgroups([])
os.setresuid(65534, 65534, 65534)
with attach(os.environ["XTS_ENDPOINT"]) as a:
    for frame in sys.argv[1:]:
        a.queue.send(bytes.fromhex(frame))
"""
OUTGOING = 4  # PACKET_OUTGOING


def test_the_devices_network_stack_sees_nothing_but_messages(lab: Lab) -> None:
    device, host = addresses(lab)
    arp = b"\xff" * 6 + host + b"\x08\x06" + bytes.fromhex("0001080006040001") + host + bytes(4) + bytes(10)
    ipv4 = device + host + b"\x08\x00" + bytes.fromhex("4500001c000000004011") + bytes(18)
    tagged = device + host + b"\x81\x00\x00\x05" + struct.pack(">H", table.ETHERTYPE) + bytes(42)
    message = codec.encode(codec.Frame("XTS_LINK_PING", destination=device, source=host))
    before = total(lab, "dropped_early")
    with lab.inside("dpu"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
        sniffer.bind(("xtsd0", 3))
        frames = [frame.hex() for frame in (arp, ipv4, tagged, message)]
        script = ["python", "-c", OTHERS, *frames]
        done = lab.run("host", script, timeout=30 * SLOWER, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        wait(lambda: total(lab, "dropped_early") > before, "the message did not arrive")
        sniffer.setblocking(False)
        seen = []
        with contextlib.suppress(BlockingIOError):
            while True:
                seen.append(sniffer.recvfrom(2048))
    assert [frame for frame, (_, _, kind, *_) in seen if kind != OUTGOING] == []


def test_frames_of_another_source_do_not_reach_the_proxy(lab: Lab, raw: socket.socket, echo_port: int) -> None:
    device, _ = addresses(lab)
    before = sum(int(channel["queue"]["rx_frames"]) for channel in channels(lab))
    for _ in range(100):
        raw.send(codec.encode(codec.Frame("XTS_LINK_PING", destination=device, source=b"\x02raw\0\1")))
        raw.send(device + b"\x02raw\0\1" + struct.pack(">H", table.ETHERTYPE) + b"\1")
    serves(lab, echo_port)  # its frames are behind those of the raw peer, and arrive
    sent_by_client = 400  # at the most: a request, its acknowledgements, opening and closing
    assert sum(int(channel["queue"]["rx_frames"]) for channel in channels(lab)) <= before + sent_by_client


def test_a_hello_of_a_raw_peer_is_answered_and_its_mistake_ends_its_channel_only(
    lab: Lab, raw: socket.socket, echo_port: int
) -> None:
    device, host = addresses(lab)

    def frame(name: str, **rest: Any) -> bytes:
        return codec.encode(codec.Frame(name, destination=device, source=host, **rest))

    hellos, errors = total(lab, "hellos"), total(lab, "sequence_errors")
    raw.send(
        frame(
            "XTS_LINK_HELLO",
            fields={
                "version": table.VERSION,
                "frame_window": 64,
                "largest_message": table.FRAME_BYTES_MAX,
                "epoch": 0xBAD,
            },
        )
    )
    wait(lambda: total(lab, "hellos") == hellos + 1, "HELLO not seen")
    raw.send(frame("XTS_CMD_SEND", id=7, seqno=99))
    wait(lambda: total(lab, "sequence_errors") == errors + 1, "the gap was not seen")
    serves(lab, echo_port)


@pytest.mark.parametrize("seed", range(3))
def test_noise(lab: Lab, raw: socket.socket, echo_port: int, seed: int) -> None:
    device, host = addresses(lab)
    chance = random.Random(seed)
    begin = device + host + struct.pack(">H", table.ETHERTYPE)
    received = sum(int(channel["queue"]["rx_frames"]) for channel in channels(lab))
    for _ in range(2000):
        kind = chance.choice([m.code for m in table.MESSAGES] + [chance.randrange(256)])
        body = bytes([kind, chance.randrange(256)]) + chance.randbytes(chance.randrange(0, 200))
        raw.send(begin + body)
    wait(
        lambda: sum(int(channel["queue"]["rx_frames"]) for channel in channels(lab)) > received,
        "nothing arrived: the test tests nothing",
    )
    serves(lab, echo_port)
