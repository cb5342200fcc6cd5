"""AF_XDP queues between two namespaces on veth."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from beds.ready import readable
from beds.veth_wire import Wire, make_wire
from pyroute2 import NetNS
from xts_bpf.device import DeviceQueues, open_device_queues
from xts_bpf.program import SteerProgram, detach_left_over
from xts_messages.queues.afxdp import LastWord, XskSocket, drops_of, open_socket
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, QueueEnd, QueueOptions

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

SIZES = [60, 61, 64, 128, 1500, 2048, 3839, 3840, 3841, 4096, 4097, 7680, 7681, 20_000, 59_000, 61_439, 61_440]
ETHERTYPE = b"\x85\x5b"


#: MTU, and the size of chunks that it is for.
CHUNKS = [(62_000, 4096), (1500, 2048), (1500, 4096)]


@dataclass(frozen=True)
class Sized:
    """A wire, and queues whose chunks have a size."""

    wire: Wire
    chunk_bytes: int

    def options(self, frame_window: int) -> QueueOptions:
        return QueueOptions(frame_window=frame_window, chunk_bytes=self.chunk_bytes)


@pytest.fixture(params=CHUNKS, ids=[f"mtu-{mtu}-chunks-{chunk}" for mtu, chunk in CHUNKS])
def sized(request: pytest.FixtureRequest) -> Iterator[Sized]:
    mtu, chunk_bytes = request.param
    for wire in make_wire(mtu):
        yield Sized(wire, chunk_bytes)


@pytest.fixture
def ends(sized: Sized) -> Iterator[tuple[DeviceQueues, DeviceQueues]]:
    """Host and device, four queues each."""
    wire, options = sized.wire, sized.options(16)
    with ExitStack() as stack:
        with wire.inside(wire.host):
            host = stack.enter_context(open_device_queues(wire.host_if, 4, wire.device_mac, options=options))
        with wire.inside(wire.device):
            device = stack.enter_context(open_device_queues(wire.device_if, 4, wire.host_mac, options=options))
        yield host, device


def sizes(queue: Queue) -> list[int]:
    """Of frames that it takes."""
    most = queue.largest_message
    return [size for size in SIZES if size <= most] + [most - 1, most]


def frame_for(queue: Queue, size: int, number: int = 0) -> bytes:
    head = queue.peer_mac + queue.local_mac + ETHERTYPE + bytes([7, number % 256])
    return head + random.Random(size * 1_000_003 + number).randbytes(size - len(head))


def until(condition: object, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def take(queue: Queue) -> bytes:
    frame = queue.wait(2000)
    data = bytes(frame)
    frame.recycle()
    return data


def take_any(device: DeviceQueues) -> bytes:
    """The kernel chooses the queue of what a packet socket sends."""
    found: list[Queue] = []
    until(lambda: found.extend(q for q in device.queues if q.arm()) or found)
    return take(found[0])


@pytest.mark.parametrize("queue_id", [0, 3])
def test_every_size_crosses_both_ways(ends: tuple[DeviceQueues, DeviceQueues], queue_id: int) -> None:
    host, device = ends
    for sender, receiver in ((host, device), (device, host)):
        source, sink = sender.queues[queue_id], receiver.queues[queue_id]
        for size in sizes(source):
            frame = frame_for(source, size)
            source.send(frame)
            frame_back = sink.wait(2000)
            assert bytes(frame_back) == frame
            assert frame_back.segments == -(-size // 3840)
            frame_back.recycle()
    assert host.program.counters().admitted == device.program.counters().admitted == len(sizes(host.queues[0]))


def test_no_loss_below_the_window_in_any_order_of_recycling(ends: tuple[DeviceQueues, DeviceQueues]) -> None:
    draw = random.Random(11)
    source, sink = ends[0].queues[1], ends[1].queues[1]
    sent, received, held, out = hashlib.sha256(), hashlib.sha256(), [], 0
    for number in range(3000):
        if out < source.frame_window:
            frame = frame_for(source, draw.choice(sizes(source)), number)
            source.submit(frame)
            sent.update(frame)
            out += 1
        if out == source.frame_window or draw.random() < 0.2:
            while not source.kick():
                pass
        while (got := sink.receive()) is not None:
            received.update(bytes(got))
            held.append(got)
        draw.shuffle(held)
        while held and draw.random() < 0.7:
            held.pop().recycle()
            out -= 1
    while not source.kick():
        pass
    while out:
        if not held:
            held.append(sink.wait(2000))
            received.update(bytes(held[0]))
        held.pop().recycle()
        out -= 1
    assert sent.digest() == received.digest()
    assert source.stats.tx_lost == 0
    assert sink.stats.rx_invalid == 0


def test_slots_run_out_and_come_back(ends: tuple[DeviceQueues, DeviceQueues]) -> None:
    source, sink = ends[0].queues[0], ends[1].queues[0]
    frames = [frame_for(source, 60, n) for n in range(source.native.tx_slots)]
    for frame in frames:
        source.submit(frame)
    with pytest.raises(BlockingIOError):
        source.submit(frames[0])
    while not source.kick():
        pass
    assert [take(sink) for _ in frames] == frames
    source.send(frames[0])
    assert take(sink) == frames[0]


def test_a_flood_without_credits_is_lost_and_counted_but_nothing_breaks(
    ends: tuple[DeviceQueues, DeviceQueues],
) -> None:
    """A receiver that recycles nothing: what the buffers hold arrives, the rest is counted, and then life goes on."""
    source, sink = ends[0].queues[0], ends[1].queues[0]
    for number in range(400):
        while True:
            try:
                source.send(frame_for(source, min(20_000, source.largest_message), number))
                break
            except BlockingIOError:
                source.kick()
    held = []
    while (frame := sink.receive()) is not None:
        held.append(frame)
    assert 16 <= len(held) < 400
    for frame in held:
        frame.recycle()
    until(lambda: sink.receive() is None)
    assert not sink.arm()
    assert sink.stats.rx_dropped > 0
    assert drops_of(int(sink.native.wait_fd)).rx_no_buffers > 0
    source.send(frame_for(source, source.largest_message, 1))
    assert take(sink) == frame_for(source, source.largest_message, 1)


def state(wire: Wire, namespace: str, interface: str, state: str) -> None:
    with NetNS(namespace) as there:
        index = there.link_lookup(ifname=interface)[0]
        there.link("set", index=index, state=state)


def looks(source: Queue) -> None:
    """As a thread that sleeps on the queue: the kernel sends from the ring by poll(), too."""
    assert not source.arm()
    readable(int(source.native.wait_fd), 0.001)
    source.disarm()


@pytest.mark.parametrize("retains", [False, True], ids=["plain", "retained"])
def test_what_is_sent_while_the_other_end_is_down_waits_for_it(
    ends: tuple[DeviceQueues, DeviceQueues], sized: Sized, retains: bool
) -> None:
    """The kernel loses a frame with each call then, and says EBUSY."""
    wire = sized.wire
    source, sink = ends[0].queues[2], ends[1].queues[2]
    sent, slots = [], []
    draw = random.Random(5)
    for outage in range(3):
        state(wire, wire.device, wire.device_if, "down")
        for number in range(16):
            frame = frame_for(source, draw.choice(sizes(source)), 100 * outage + number)
            sent.append(frame)
            if retains and number % 2:
                slots.append(source.submit_retained(frame))
            else:
                source.submit(frame)
            if draw.random() < 0.4:
                assert not source.kick()
                looks(source)
        assert not source.kick()
        state(wire, wire.device, wire.device_if, "up")
        until(source.kick)
        assert [take(sink) for _ in sent] == sent
        for slot in slots:
            slot.release()
        sent, slots = [], []
        source.send(frame_for(source, 60, outage))
        assert take(sink) == frame_for(source, 60, outage)
    assert source.stats.tx_lost == 0 and source.stats.tx_resent >= 3
    frames = [frame_for(source, 60, n) for n in range(source.native.tx_slots)]  # no slot is missing
    for frame in frames:
        source.submit(frame)
    until(source.kick)
    assert [take(sink) for _ in frames] == frames


def test_a_retained_slot_is_sent_again_as_it_was(ends: tuple[DeviceQueues, DeviceQueues]) -> None:
    host, device = ends
    source, sink = host.queues[0], device.queues[0]
    for size in (60, min(4097, source.largest_message), source.largest_message):
        frame = frame_for(source, size)
        slot = source.submit_retained(frame)
        source.kick()
        assert take(sink) == frame
        for number in range(3):
            source.send(frame_for(source, 70, number))
            until(slot.submit)
            source.kick()
            assert take(sink) == frame_for(source, 70, number)
            assert take(sink) == frame
        slot.release()
    for number in range(200):
        source.send(frame_for(source, 60, number))
        assert take(sink) == frame_for(source, 60, number)


def test_kept_frames_take_no_chunk_from_the_window(wire: Wire) -> None:
    with ExitStack() as stack:
        with wire.inside(wire.host):
            host = stack.enter_context(
                open_device_queues(wire.host_if, 1, wire.device_mac, options=QueueOptions(frame_window=4))
            )
        with wire.inside(wire.device):
            options = QueueOptions(frame_window=4, kept_max=32)
            device = stack.enter_context(open_device_queues(wire.device_if, 1, wire.host_mac, options=options))
        source, sink = host.queues[0], device.queues[0]
        assert (source.kept_max, sink.kept_max) == (0, 32)
        kept = []
        for number in range(2):
            source.send(frame_for(source, 61_440, number))
            frame = sink.wait(2000)
            assert frame.keep()
            kept.append(frame)
        for number in range(2, 6):
            source.send(frame_for(source, 61_440, number))
        lent = [sink.wait(2000) for _ in range(4)]
        assert not lent[0].keep(), "32 chunks hold two of the largest frames"
        for number in range(32):
            source.send(frame_for(source, 60, number))
        assert [take(sink) for _ in range(32)] == [frame_for(source, 60, number) for number in range(32)]
        assert [bytes(f) for f in kept + lent] == [frame_for(source, 61_440, number) for number in range(6)]
        for frame in kept + lent:
            frame.recycle()
        assert sink.stats.rx_dropped == 0


def test_a_used_socket_is_not_adopted_again(wire: Wire) -> None:
    with wire.inside(wire.host), open_socket(wire.host_if, 0) as xsk:
        with adopted_copy(xsk):
            pass
        with pytest.raises(OSError) as refused:
            adopted_copy(xsk)
        assert refused.value.errno == errno.EBUSY


def test_a_socket_is_closed_and_opened_again(wire: Wire) -> None:
    with wire.inside(wire.host):
        for _ in range(3):
            with open_socket(wire.host_if, 2, patience_s=1.0) as xsk, pytest.raises(OSError) as busy:
                open_socket(wire.host_if, 2)
            assert busy.value.errno == errno.EBUSY
            assert xsk.xsk_fd == -1
        with pytest.raises(OSError, match="no such queue"):
            open_socket(wire.host_if, 8)


def test_a_small_mtu_limits_the_message_and_a_tiny_one_is_refused() -> None:
    for wire in make_wire(9000):
        with wire.inside(wire.host), open_socket(wire.host_if, 0) as xsk:
            assert (xsk.geometry.largest_message, xsk.geometry.chunk_bytes) == (9014, 4096)
    for wire in make_wire(1500):
        with wire.inside(wire.host), open_socket(wire.host_if, 0) as xsk:
            assert (xsk.geometry.largest_message, xsk.geometry.chunk_bytes) == (1514, 2048)
    for wire in make_wire(1279):
        with wire.inside(wire.host), pytest.raises(OSError, match="the MTU is below 1280"):
            open_socket(wire.host_if, 0)


def test_single_chunk_fallback(wire: Wire) -> None:
    with ExitStack() as stack:
        with wire.inside(wire.host):
            host = stack.enter_context(
                open_device_queues(wire.host_if, 1, wire.device_mac, options=QueueOptions(single_chunk=True))
            )
        with wire.inside(wire.device):
            device = stack.enter_context(
                open_device_queues(wire.device_if, 1, wire.host_mac, options=QueueOptions(single_chunk=True))
            )
        for source, sink in ((host.queues[0], device.queues[0]), (device.queues[0], host.queues[0])):
            assert source.largest_message == 3840
            for size in (60, 2048, 3840):
                source.send(frame_for(source, size))
                assert take(sink) == frame_for(source, size)
            with pytest.raises(OSError) as refused:
                source.submit(frame_for(source, 3841))
            assert refused.value.errno == errno.EMSGSIZE


def test_a_queue_whose_process_has_ended_has_all_its_chunks(sized: Sized) -> None:
    """It had received some frames, others wait in the receive ring, and one was published and not kicked."""
    wire, options = sized.wire, sized.options(4)
    with ExitStack() as stack:
        with wire.inside(wire.device):
            device = stack.enter_context(open_device_queues(wire.device_if, 1, wire.host_mac, options=options))
        with wire.inside(wire.host):
            program = stack.enter_context(SteerProgram(wire.host_if, wire.device_mac))
            xsk = stack.enter_context(open_socket(wire.host_if, 0, options=options))
            program.admit(0, xsk.xsk_fd)
        xsk.set_addresses(wire.host_mac, wire.device_mac)
        source, dead = device.queues[0], adopted_copy(xsk)
        largest = source.largest_message
        for number in range(4):
            source.send(frame_for(source, largest, number))
        lent = [dead.wait(2000) for _ in range(2)]
        assert len(lent) == 2
        dead.send(frame_for(dead, 100))
        assert take(source) == frame_for(dead, 100)
        with pytest.raises(OSError):  # it is not as new
            adopted_copy(xsk)
        dead.close()
        end = QueueEnd(xsk.geometry, (os.dup(xsk.xsk_fd), os.dup(xsk.umem_fd)))
        queue = stack.enter_context(end.adopt_orphan(HOST))
        assert [take(queue) for _ in range(2)] == [frame_for(source, largest, number) for number in (2, 3)]
        for _ in range(3):  # more than all chunks of a queue that has lost some
            for number in range(4):
                source.send(frame_for(source, largest, number))
            frames = [queue.wait(2000) for _ in range(4)]
            assert [bytes(frame) for frame in frames] == [frame_for(source, largest, number) for number in range(4)]
            for frame in frames:
                frame.recycle()
        for number in range(source.native.tx_slots + 4):
            queue.send(frame_for(queue, largest, number))
            assert take(source) == frame_for(queue, largest, number)
        assert queue.stats.rx_dropped == 0


def test_the_last_word_leaves_whatever_the_owner_did(sized: Sized) -> None:
    wire, options = sized.wire, sized.options(16)
    with ExitStack() as stack:
        with wire.inside(wire.device):
            device = stack.enter_context(open_device_queues(wire.device_if, 1, wire.host_mac, options=options))
        with wire.inside(wire.host):
            stack.enter_context(SteerProgram(wire.host_if, wire.device_mac))
            xsk = stack.enter_context(open_socket(wire.host_if, 0, options))
            last = stack.enter_context(LastWord(xsk))
        xsk.set_addresses(wire.host_mac, wire.device_mac)
        owner = adopted_copy(xsk)
        owner.submit(frame_for(owner, owner.largest_message))  # never kicked
        owner.close()
        word = wire.device_mac + wire.host_mac + ETHERTYPE + b"goodbye".ljust(46, b"\0")
        last.send(word)
        assert take(device.queues[0]) == word
        last.send(word)
        assert take(device.queues[0]) == word


def adopted_copy(xsk: XskSocket) -> Queue:
    return QueueEnd(xsk.geometry, (os.dup(xsk.xsk_fd), os.dup(xsk.umem_fd))).adopt(HOST)


def test_frames_that_are_too_long_are_counted_and_their_chunks_recycled() -> None:
    """18 descriptors: more than a message may have, and more times than there are chunks."""
    for wire in make_wire(65_535):
        with (
            wire.inside(wire.device),
            open_device_queues(wire.device_if, 8, wire.host_mac, options=QueueOptions(frame_window=4)) as device,
        ):
            frame = (wire.device_mac + wire.host_mac + ETHERTYPE).ljust(65_500, b"l")
            with wire.inside(wire.host), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
                raw.bind((wire.host_if, 0))
                for number in range(1, 51):
                    raw.send(frame)
                    until(lambda: [q.receive() for q in device.queues] and total_invalid(device) == number)  # noqa: B023
                raw.send(frame[:61_440])
                assert take_any(device) == frame[:61_440]


def total_invalid(device: DeviceQueues) -> int:
    return sum(q.stats.rx_invalid for q in device.queues)


class TestSteering:
    """What the program does with frames that are not a peer's messages."""

    @pytest.fixture
    def device(self, wire: Wire) -> Iterator[DeviceQueues]:
        with wire.inside(wire.device), open_device_queues(wire.device_if, 8, wire.host_mac) as device:
            yield device

    def send_raw(self, wire: Wire, frame: bytes) -> None:
        with wire.inside(wire.host), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((wire.host_if, 0))
            raw.send(frame)

    def test_a_foreign_station_is_dropped_and_counted(self, wire: Wire, device: DeviceQueues) -> None:
        self.send_raw(wire, wire.device_mac + b"\x02evil!" + ETHERTYPE + bytes(46))
        until(lambda: device.program.counters().foreign == 1)
        assert all(queue.receive() is None for queue in device.queues)

    def test_a_short_frame_is_dropped_and_counted(self, wire: Wire, device: DeviceQueues) -> None:
        self.send_raw(wire, wire.device_mac + wire.host_mac + ETHERTYPE + bytes(9))
        until(lambda: device.program.counters().malformed == 1)
        assert all(queue.receive() is None for queue in device.queues)

    def test_the_shortest_message_is_admitted(self, wire: Wire, device: DeviceQueues) -> None:
        frame = wire.device_mac + wire.host_mac + ETHERTYPE + bytes(10)
        self.send_raw(wire, frame)
        assert take_any(device) == frame
        assert device.program.counters().admitted == 1

    def test_other_traffic_is_the_kernels(self, wire: Wire, device: DeviceQueues) -> None:
        before = device.program.counters().passed
        frame = wire.device_mac + wire.host_mac + b"\x88\xb5" + bytes(46)
        with wire.inside(wire.device), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sniffer:
            sniffer.bind((wire.device_if, 0x88B5))
            sniffer.settimeout(5)
            self.send_raw(wire, frame)
            assert sniffer.recv(100) == frame
        assert device.program.counters().passed > before

    def test_a_queue_without_a_socket_drops(self, wire: Wire, device: DeviceQueues) -> None:
        for queue_id in range(8):
            device.program.withdraw(queue_id)
        self.send_raw(wire, wire.device_mac + wire.host_mac + ETHERTYPE + bytes(46))
        until(lambda: device.program.counters().no_socket == 1)

    def test_an_exclusive_interface_drops_the_rest(self, wire: Wire) -> None:
        with wire.inside(wire.device), SteerProgram(wire.device_if, wire.host_mac, exclusive=True) as program:
            before = program.counters()  # until it was configured it passed everything
            self.send_raw(wire, wire.device_mac + wire.host_mac + b"\x88\xb5" + bytes(46))
            until(lambda: program.counters().others_dropped > before.others_dropped)
            assert program.counters().passed == before.passed

    def test_what_a_holder_of_a_queue_sends_ends_at_an_exclusive_interface(self, wire: Wire) -> None:
        others = [
            wire.device_mac + wire.host_mac + kind + bytes(46) for kind in (b"\x08\x00", b"\x08\x06", b"\x81\x00")
        ]
        message = wire.device_mac + wire.host_mac + ETHERTYPE + bytes(46)
        with ExitStack() as stack:
            with wire.inside(wire.host):
                host = stack.enter_context(open_device_queues(wire.host_if, 1, wire.device_mac))
            with wire.inside(wire.device):
                device = stack.enter_context(open_device_queues(wire.device_if, 1, wire.host_mac, exclusive=True))
                sniffer = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
                sniffer.bind((wire.device_if, 3))
            for frame in (*others, message):
                host.queues[0].send(frame)
            assert take(device.queues[0]) == message
            counters = device.program.counters()
            assert (counters.admitted, counters.passed, counters.others_dropped >= len(others)) == (1, 0, True)
            sniffer.setblocking(False)
            with pytest.raises(BlockingIOError):
                print(sniffer.recvfrom(2048))

    def test_a_configured_ethertype(self, wire: Wire) -> None:
        with wire.inside(wire.device), open_device_queues(wire.device_if, 8, wire.host_mac, ethertype=0x88B6) as device:
            frame = wire.device_mac + wire.host_mac + b"\x88\xb6" + bytes(46)
            self.send_raw(wire, frame)
            assert take_any(device) == frame

    def test_a_left_over_program_is_replaced(self, wire: Wire) -> None:
        with wire.inside(wire.device):
            first = SteerProgram(wire.device_if, wire.host_mac)
            with SteerProgram(wire.device_if, wire.host_mac) as second:
                assert second.program_id != first.program_id
            first.close()

    def test_a_left_over_program_can_be_taken_off(self, wire: Wire) -> None:
        """By who removes the package, say: no process will come that replaces it."""
        with wire.inside(wire.device):
            SteerProgram(wire.device_if, wire.host_mac, exclusive=True).leave()
            assert detach_left_over(wire.device_if)
            assert not detach_left_over(wire.device_if), "there is none any more"

    def test_no_such_interface(self) -> None:
        with pytest.raises(OSError, match="there is no interface nowhere0"):
            SteerProgram("nowhere0", bytes(6))
        with pytest.raises(OSError, match="there is no interface nowhere0"):
            detach_left_over("nowhere0")

    def test_generic_mode_is_refused(self) -> None:
        """Loopback has no native XDP."""
        with pytest.raises(OSError, match="native mode"):
            SteerProgram("lo", bytes(6))
