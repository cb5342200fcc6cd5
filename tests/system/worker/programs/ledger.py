"""A worker that goes on by a ledger, whoever has written that. In a process of its own: there is one ledger for all of
its workers.

    ledger.py CASE
"""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from beds.memory_sum import memory_sum, sum_of_words, summed_count
from beds.scripted_host import WINDOW, ScriptedHost, Worker, worker_ffi, worker_lib
from beds.worker import FEATURES, connected
from xts_messages.wire import wire_table as table

RESUME = table.FEATURES["RESUME"][0]
#: struct ledger_line
LINE = struct.Struct("=IIIBBBxIIQQQQQIIQII8xQII16x")
#: What its sum leaves out: sequence, place, place_received, place_frames, spilled, taken, sum, and sums of these.
CHANGING = ((0, 4), (48, 68), (88, 92), (96, 108), (112, 124))
#: What these sums are of: place, place_received and place_frames; taken; spilled.
COUNTED = (struct.Struct("=48xQQI"), struct.Struct("=96xQ"), struct.Struct("=88xI"))
#: struct ledger_relayed: taken, queue_id, number, sequence, live, epoch, frames, came
PAGE = struct.Struct("=III4xIB3xQQQ")
SO_COOKIE = 57
#: The first channel of a worker.
QUEUE = 0
LINES_MANY = 1 << 20
#: What RESUME says besides.
NOTHING = dict.fromkeys(("unread", "received_bytes", "sent_bytes", "fin_sent"), 0)
TICKET = 0x8123456700000000
ESTABLISHED, LISTENER = 2, 3
#: Memory of this process that is no queue's.
_MEMORY = worker_ffi.new("char[4096]")
OURS = int(worker_ffi.cast("uintptr_t", _MEMORY))
#: struct tcp_info: tcpi_bytes_acked, tcpi_bytes_received
COUNTS = struct.Struct("=120xQQ")


@dataclass(frozen=True)
class Line:
    """`read_from` and `written_from`: the kernel's counts where the host's are 0."""

    cookie: int
    read_from: int = 0
    written_from: int = 0
    sequence: int = 2
    queue_id: int = QUEUE
    proxy_id: int = 17
    state: int = ESTABLISHED
    ip_version: int = 4
    flags: int = 0
    kernel_send: int = 0
    kernel_receive: int = 0
    place: int = 0
    place_received: int = 0
    place_frames: int = 0
    keep_ms: int = 0
    name: int = 0
    tls: int = 0
    number: int = 0
    #: bytes, and the frame up to which they are counted
    taken: int = 0
    pushed: int = 0

    def packed(self) -> bytes:
        numbers = self.sequence, self.queue_id, self.proxy_id, self.state, self.ip_version, self.flags
        sizes = self.kernel_send, self.kernel_receive, self.cookie, self.read_from, self.written_from
        place = self.place, self.place_received, self.place_frames
        rest = self.keep_ms, self.name, self.tls, self.number, self.taken
        return summed(LINE.pack(*numbers, *sizes, *place, *rest, 0, self.pushed))


def summed(line: bytes) -> bytes:
    """With its right sums, as ledger.h makes them."""
    kept = bytearray(line)
    for begin, end in CHANGING:
        kept[begin:end] = bytes(end - begin)
    cookie = int.from_bytes(line[24:32], sys.byteorder)
    counts = (sum_of_words(cookie, *counted.unpack_from(line)) for counted in COUNTED)
    whole = struct.pack("=I", memory_sum(bytes(kept)))
    return line[:104] + whole + line[108:112] + struct.pack("=III", *counts) + line[124:]


def cookie_of(sock: socket.socket) -> int:
    return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), sys.byteorder)


def pair() -> tuple[socket.socket, socket.socket]:
    """A connection: what the dead process had, and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    ours.setblocking(False)
    peer.settimeout(5)
    return ours, peer


def line_of(sock: socket.socket, **fields: int) -> Line:
    """Of a connection that has just been made."""
    acked, received = COUNTS.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, COUNTS.size))
    return Line(cookie_of(sock), received, acked, **fields)


def carry(ours: socket.socket, peer: socket.socket, received: int, sent: int) -> None:
    """What TCP gave to the dead process, and took from it."""
    peer.sendall(bytes(received))
    while received:
        received -= len(ours.recv(received))
    ours.sendall(bytes(sent))
    while sent:
        sent -= len(peer.recv(sent))


def write(descriptor: int, line: bytes) -> None:
    worker_ffi.memmove(worker_lib.xts_ledger_line(descriptor), line, len(line))


def recover(worker: Worker, number: int = 0) -> int:
    queue = worker_ffi.cast("struct xts_queue *", worker_lib.xts_ledger_queue(QUEUE))
    return int(worker_lib.xts_worker_recover(worker.native, queue, worker.tenant, QUEUE, number, TICKET))


def recovered(worker: Worker, sock: socket.socket, line: Line) -> int:
    """How many sockets the worker keeps of a ledger with this line. The descriptor is the worker's."""
    for descriptor in range(128):
        write(descriptor, bytes(LINE.size))  # those that this worker has claimed are not dead
    write(sock.detach(), line.packed())
    return recover(worker)


def is_reset(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) != b""
    except ConnectionResetError:
        return True


def resume(host: ScriptedHost, number: int, **fields: int) -> int:
    """The error in the answer."""
    numbers = NOTHING | fields
    key = TICKET | numbers.pop("id", 17)
    host.send("XTS_CMD_RESUME", xts_socket=number, token=1, key=key, post_credits=WINDOW, **numbers)
    return int(host.expect("XTS_REPLY_CLAIM_ACK").error)


def right(worker: Worker) -> None:
    """What the host has counted as the kernel has, goes on; what it has not, is reset."""
    with worker.attach(features=FEATURES | RESUME) as made:
        host = made.open()
        ours, peer = pair()
        line = line_of(ours, taken=200 << 32)
        carry(ours, peer, 100, 200)
        assert recovered(worker, ours, line) == 1
        assert resume(host, 77, received_bytes=100, sent_bytes=200) == 0
        kept = peer
        kept.sendall(b"x")
        assert host.expect("XTS_REPLY_RECV").payload == b"x"
        wrongs = ({"received_bytes": 99}, {"received_bytes": 101}, {"sent_bytes": 201}, {"sent_bytes": 199})
        for id, wrong in enumerate(wrongs, 18):
            ours, peer = pair()
            line = line_of(ours, proxy_id=id, taken=200 << 32)
            carry(ours, peer, 100, 200)
            assert recovered(worker, ours, line) == 1
            counts = {"received_bytes": 100, "sent_bytes": 200} | wrong
            assert resume(host, 78, id=id, **counts) == errno.ECONNRESET


def ends(worker: Worker) -> None:
    """FIN is sent once: by this process, if the host has sent it and the kernel has not; and no connection goes on that
    has sent one of which the host knows nothing."""
    with worker.attach(features=FEATURES | RESUME) as made:
        host = made.open()
        ours, peer = pair()
        assert recovered(worker, ours, line_of(ours)) == 1
        assert resume(host, 77, fin_sent=1) == 0
        peers = [peer]  # they do not end
        assert peer.recv(1) == b""
        for id, fin_sent, error in ((18, 1, 0), (19, 0, errno.ECONNRESET)):
            ours, peer = pair()
            peers.append(peer)
            line = line_of(ours, proxy_id=id)
            ours.shutdown(socket.SHUT_WR)
            assert peer.recv(1) == b""
            assert recovered(worker, ours, line) == 1
            assert resume(host, 60 + id, id=id, fin_sent=fin_sent) == error


def parked(worker: Worker) -> None:
    """RESUME is nothing for one that a host has parked; it can be claimed."""
    with worker.attach(features=FEATURES | RESUME) as made, socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        host = made.open()
        c = connected(host, server)
        host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=1, key=TICKET | 17, keep_ms=60_000)
        assert host.expect("XTS_REPLY_PARK_ACK").error == 0
        for counts in ({}, {"sent_bytes": 1 << 40}, {"received_bytes": 1 << 63, "fin_sent": 1}):
            assert resume(host, 77, **counts) == errno.ECONNRESET
        host.send("XTS_CMD_CLAIM", xts_socket=78, token=1, key=TICKET | 17, post_credits=WINDOW, unread=0)
        assert host.expect("XTS_REPLY_CLAIM_ACK").error == 0
        c.peer.sendall(b"x")
        assert host.expect("XTS_REPLY_RECV").payload == b"x"


def lies(worker: Worker) -> None:
    """Nothing of these goes on, and a connection is reset, not ended."""
    wrong: list[dict[str, int]] = [
        {"sequence": 3},
        {"sequence": 0},
        {"proxy_id": 0},
        {"ip_version": 6},
        {"ip_version": 9},
        {"kernel_send": 1 << 31},
        {"kernel_receive": 0xFFFFFFFF},
    ]
    for fields in wrong:
        ours, peer = pair()
        assert recovered(worker, ours, replace(line_of(ours), **fields)) == 0, fields
        assert is_reset(peer), fields


def written_over(worker: Worker) -> None:
    """By the fault of which the process has died: a byte is another one, or TCP has more of its host's bytes than had
    come. Of where the last read went to, places() says that."""
    for at in [*range(4, 48), *range(68, 112), *range(116, 124)]:
        ours, peer = pair()
        line = bytearray(line_of(ours).packed())
        line[at] ^= 1 << at % 8
        write(ours.detach(), bytes(line))
        assert recover(worker) == 0, at
        peer.close()
    for taken, goes_on in ((95, 0), (100, 1), (105, 1), (2**32 - 1, 0)):
        ours, peer = pair()
        line = line_of(ours, proxy_id=500 + taken % 200, taken=taken << 32)
        carry(ours, peer, 0, 100)
        assert recovered(worker, ours, line) == goes_on, taken


def others(worker: Worker) -> None:
    """A line that a socket before has left: whatever has its number now is not touched."""
    line = line_of(pair()[0])
    for other in (socket.socketpair()[0], socket.create_server(("127.0.0.1", 0)), pair()[0]):
        descriptor = other.fileno()
        for wrong in (line, *(replace(line, state=state) for state in (LISTENER, 7, 255))):
            write(descriptor, wrong.packed())
            assert recover(worker) == 0
            os.fstat(descriptor)
    listener = socket.create_server(("127.0.0.1", 0))
    write(listener.fileno(), Line(cookie_of(listener)).packed())
    assert recover(worker) == 0
    os.fstat(listener.fileno())


def places(worker: Worker) -> None:
    """Of what was read last, no memory is believed to have it but the queue's own."""
    with worker.attach(features=FEATURES | RESUME) as made:
        host = made.open()
        for id, place in enumerate((1, 1 << 63, (1 << 64) - 50, OURS)):
            ours, peer = pair()
            line = line_of(ours, proxy_id=20 + id, place=place, place_frames=0)
            carry(ours, peer, 100, 0)
            assert recovered(worker, ours, line) == 1
            assert resume(host, 70 + id, id=20 + id) == errno.ECONNRESET


def last_read(worker: Worker) -> None:
    """It is in a slot of the queue. If another place is written there, or another count, then nobody knows what it
    was."""
    state = worker_ffi.buffer(worker_lib.xts_ledger_queue(QUEUE), 1024)
    peers = []
    with worker.attach(features=FEATURES | RESUME) as made:
        host = made.open()
        words = [word for (word,) in struct.iter_unpack("=Q", bytes(state)) if word >> 40]

        def resumed(id: int, place: int, wrong: int = 0, at: int = 48) -> int:
            ours, peer = pair()
            peers.append(peer)
            line = line_of(ours, proxy_id=id, place=place, place_frames=int(host.link.stats.received_frames))
            carry(ours, peer, 100, 0)
            content = bytearray(line.packed())
            content[at] ^= wrong
            for descriptor in range(256):
                write(descriptor, bytes(LINE.size))  # as recovered()
            write(ours.detach(), bytes(content))
            assert recover(worker) == 1
            return resume(host, 1000 + id, id=id)

        slots = next(word for id, word in enumerate(words, 1000) if resumed(id, word) == 0)
        assert len(host.expect("XTS_REPLY_RECV").payload) == 100
        for id, at in enumerate([*range(48, 50), *range(56, 58), *range(64, 68), *range(112, 116)], 2000):
            assert resumed(id, slots, 1 << id % 7, at) == errno.ECONNRESET, at
        assert resumed(3000, slots) == 0


def named(worker: Worker) -> None:
    """Others may ask for it as before, when its host has resumed it. Before that they ask again."""
    named = FEATURES | RESUME | table.FEATURES["TAKE"][0]
    with worker.attach(features=named) as made, worker.attach(2, features=named) as other:
        host, asker, name = made.open(), other.open(), 0x1234567

        def take() -> int:
            asker.send("XTS_CMD_TAKE", xts_socket=1, token=9, key=name, post_credits=WINDOW, purpose=3)
            return int(asker.expect("XTS_REPLY_TAKE_ACK").error)

        assert take() == errno.ENOENT
        ours, peer = pair()
        assert recovered(worker, ours, line_of(ours, name=name, keep_ms=60_000)) == 1
        assert take() == errno.EBUSY
        assert resume(host, 77) == 0
        assert take() == errno.EBUSY
        assert host.expect("XTS_REPLY_YIELD").id == 77
        peer.sendall(b"x")
        assert host.expect("XTS_REPLY_RECV").payload == b"x"
        peers = [peer]  # they do not end
        for id, wrong in enumerate(({"name": name}, {"name": TICKET | 19}, {"keep_ms": 60_001, "name": 5}), 18):
            ours, peer = pair()
            peers.append(peer)
            assert recovered(worker, ours, line_of(ours, proxy_id=id, **wrong)) == 1  # and nobody asks for it
            assert resume(host, 80 + id, id=id) == 0


def shared(worker: Worker) -> None:
    """While the host that has a listener sleeps, others join it by its key: by the present one."""
    with worker.attach(features=FEATURES | RESUME), worker.attach(2, features=FEATURES | RESUME) as made:
        other, listener = made.open(), socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        for renewals, key in enumerate((66, 77)):
            again = listener.dup()
            fields = {"state": LISTENER, "proxy_id": 17 + renewals, "name": key, "place": renewals}
            write(again.fileno(), Line(cookie_of(again), **fields).packed())
            again.detach()
        assert recover(worker) == 2
        for key, error in ((66, errno.ENOENT), (77, 0)):
            other.send("XTS_CMD_SHARE", xts_socket=5, token=9, key=key, keep_ms=0)
            assert other.expect("XTS_REPLY_SHARE_ACK").error == error


def tenant_in_line(name: str) -> int:
    """FNV-1a."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return found


def nobodys(worker: Worker) -> None:
    """What no process holds goes with a channel of its tenant, and of no other one."""
    named = FEATURES | RESUME | table.FEATURES["TAKE"][0]
    with worker.attach(features=named) as made:
        asker, peers = made.open(), []
        for key, tenant in ((31, "another"), (32, "default")):
            ours, peer = pair()
            peers.append(peer)
            nobodys = {"queue_id": 0xFFFFFFFF, "place": tenant_in_line(tenant), "name": key, "keep_ms": 60_000}
            line = line_of(ours, **nobodys)
            write(ours.detach(), line.packed())
        assert recover(worker) == 1
        for key, error in ((31, errno.ENOENT), (32, errno.EBUSY)):  # EBUSY: until its channel is here
            asker.send("XTS_CMD_TAKE", xts_socket=1, token=9, key=key, post_credits=WINDOW, purpose=3)
            assert asker.expect("XTS_REPLY_TAKE_ACK").error == error


def lost(worker: Worker) -> None:
    """What no process holds goes on with all that its last host has sent, or not at all: its peer must not take an end
    of all processes for the end of the stream."""
    peers = []
    for key, taken in ((41, 0), (42, 50)):
        ours, peer = pair()
        peers.append(peer)
        parked = {"queue_id": 0xFFFFFFFF, "place": tenant_in_line("default"), "name": key, "keep_ms": 60_000}
        line = line_of(ours, proxy_id=key, taken=taken << 32, **parked)
        write(ours.detach(), line.packed())
    with worker.attach(1, features=FEATURES | RESUME):
        assert recover(worker) == 2
        with worker.resume(TICKET, 55, bytes(int(_DEAD.known_bytes)))[1]:
            given = worker_ffi.new("uint64_t[]", [41, 42])
            assert worker_lib.xts_worker_keys_over(worker.native, worker.tenant, given, 2) == 0
            assert peers[0].recv(1) == b""
            try:
                raise AssertionError(peers[1].recv(1))
            except ConnectionResetError:
                pass


def noise(worker: Worker) -> None:
    drawn = random.Random(33)
    with worker.attach(features=FEATURES | RESUME):
        for _ in range(300):
            ours, peer = pair()
            line = bytearray(line_of(ours, place=drawn.getrandbits(48)).packed())
            for _ in range(drawn.randrange(1, 4)):
                line[drawn.randrange(len(line))] = drawn.randrange(256)
            write(ours.detach(), summed(bytes(line)))  # as who has broken into the process may
            assert recover(worker) in (0, 1)
            peer.close()


def one_after_the_other(worker: Worker) -> None:
    """What a host has claimed from this process gets another identifier than what it has not claimed yet: should this
    one die as well, the host claims both from the next one."""
    waiting, peers = [1, 2, 3, (1 << 20) + 4, 5, 6], []
    with worker.attach(1, features=FEATURES | RESUME):
        for id in waiting:
            ours, peer = pair()
            peers.append(peer)
            line = line_of(ours, proxy_id=id)
            write(ours.detach(), line.packed())
        assert recover(worker) == len(waiting)
        with worker.resume(TICKET, 55, bytes(int(_DEAD.known_bytes)), features=FEATURES | RESUME)[1] as host:
            host.open()
            while waiting:
                key = TICKET | waiting.pop()
                host.send("XTS_CMD_RESUME", xts_socket=len(waiting), token=1, key=key, post_credits=WINDOW, **NOTHING)
                answer = host.expect("XTS_REPLY_CLAIM_ACK")
                assert not answer.error
                assert answer.fields["proxy_id"] not in waiting


def swept(_: Worker) -> None:
    """Looking for what was open takes no memory for lines that were never written: the unit allows a million."""
    keep = list(range(1024))
    out = worker_ffi.new("struct xts_swept *")
    before = shared_kib()
    assert worker_lib.xts_ledger_sweep(LINES_MANY, keep, len(keep), out) == 0
    assert (out.kept, out.reset) == (0, 0)
    assert shared_kib() - before < 1024


def shared_kib() -> int:
    """proc_pid_status(5)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssShmem:")).split()[1])


def page(index: int, content: bytes) -> None:
    worker_ffi.memmove(worker_lib.xts_ledger_place_of_relayed(index), content, len(content))


_DEAD = worker_ffi.new("struct xts_dead_channel *")
assert worker_lib.xts_ledger_channel(1 << 20, _DEAD) == -errno.ENOENT  # which says how long `known` is
#: Of a page, between what PAGE has and the state of heads: tenant, identity, owner.
BEFORE_HEADS = worker_ffi.sizeof("struct xts_owner") + len(_DEAD.tenant) + int(_DEAD.known_bytes)
#: States of heads, and whether a channel can have them.
HEADS = [
    (bytes(10), True),
    (bytes([1, *bytes(9)]), True),
    (bytes([1, 1, *bytes(7), 9]), True),
    (bytes([1, 0, *bytes(7), 9]), False),
    (bytes([2, *bytes(9)]), False),
    (bytes([1, 255, *bytes(8)]), False),
]


def dead_heads() -> bytes:
    """Of the first channel behind a relay that could go on."""
    assert worker_lib.xts_ledger_relayed(QUEUE, 0, _DEAD)
    return bytes(_DEAD.heads)


def dead_numbers() -> dict[int, int]:
    """Epochs of channels behind relays that could go on, by their numbers."""
    out, at, found = _DEAD, 0, {}
    while at := worker_lib.xts_ledger_relayed(QUEUE, at, out):
        found[int(out.number)] = int(out.epoch)
    return found


def relayed(worker: Worker) -> None:
    """Each channel behind a relay has its own lines, and its own page, of which nothing is believed."""
    with worker.attach(features=FEATURES | RESUME):
        peers = []
        for number, queue in ((5, QUEUE), (5, QUEUE + 1), (7, QUEUE), (0, QUEUE), (8, QUEUE)):
            ours, peer = pair()
            peers.append(peer)
            line = line_of(ours, number=number, queue_id=queue, proxy_id=20 + len(peers))
            write(ours.detach(), line.packed())
        assert [recover(worker, number) for number in (5, 7, 0)] == [1, 1, 1]
        assert dead_numbers() == {}  # recovering has made places, and nobody is there
        right = {"taken": 1, "queue": QUEUE, "number": 5, "sequence": 2, "live": 1, "epoch": 55}
        right |= {"frames": summed_count(0), "came": summed_count(7)}
        page(0, PAGE.pack(*right.values()))
        assert dead_numbers() == {5: 55}
        wrong = ({"frames": summed_count(0) ^ 1}, {"came": summed_count(7) ^ 1})
        lies = ({"taken": 0}, {"queue": 1}, {"number": 0}, {"number": table.RELAY_SELF}, {"number": 1 << 31})
        for lie in (*lies, {"sequence": 3}, {"sequence": 0}, {"live": 0}, {"epoch": 0}, *wrong):
            page(0, PAGE.pack(*(right | lie).values()))
            assert dead_numbers() == {}, lie
        for heads, there in HEADS:
            page(0, PAGE.pack(*right.values()) + bytes(BEFORE_HEADS) + heads)
            assert dead_numbers() == ({5: 55} if there else {}), heads
            assert not there or dead_heads() == heads
        drawn = random.Random(34)
        for _ in range(2000):
            content = bytearray(PAGE.pack(*right.values()) + drawn.randbytes(200))
            for _ in range(drawn.randrange(6)):
                content[drawn.randrange(PAGE.size)] = drawn.randrange(256)
            page(drawn.randrange(2), bytes(content))
            assert all(0 < number < table.RELAY_SELF for number in dead_numbers())


if __name__ == "__main__":
    assert LINE.size == 128
    assert worker_lib.xts_ledger_make(LINES_MANY if sys.argv[1] == "swept" else 8192, 16) == 0
    with Worker() as one:
        globals()[sys.argv[1]](one)
