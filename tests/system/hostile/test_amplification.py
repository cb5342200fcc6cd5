"""How much memory each message of a host makes the proxy and its kernel keep, per byte sent: none more than eightfold,
but those that make a socket, a protocol or a membership, which are counted and limited by themselves. The figures have
to be those of the table in SECURITY.md, of which `pytest -s` prints the rows.

Memory of the process is what malloc has given out (mallinfo2), of the kernel an estimate from the sizes of its structs.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import secrets
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.classic_bpf import SO_ATTACH_FILTER, SO_DETACH_FILTER, of_length
from beds.datagrams import FEATURES as DATAGRAM
from beds.datagrams import Udp, open_datagram, udp_peer
from beds.native_core import compiler
from beds.scripted_host import ScriptedHost, Worker
from beds.share import KEEP_MS, goodbye, share
from beds.worker import FEATURES, LOOPBACK, PREFIX, Conn, connected
from xts_messages.wire import codec, datagram
from xts_messages.wire import wire_table as table

SHARED_DATAGRAM = table.FEATURES["SHARE_DATAGRAM"][0] | table.FEATURES["RETURN_DATAGRAM"][0]
CANCEL = table.FEATURES["CANCEL"][0]
LISTENING = table.FEATURES["LISTENING"][0]
MANY = 256
MOST = 8
PDU = 8000
WORKER = Path(__file__).resolve().parents[3] / "dpu_proxy" / "native"

#: What makes something that is charged by itself, and by what.
MAKES = {
    "XTS_CMD_CONNECT": "a socket, and its window: connections, descriptors, spill_mib",
    "XTS_CMD_LISTEN": "a listener, and what the kernel queues for it (net.core.somaxconn): listeners",
    "XTS_CMD_IOCTL": "protocols: ulp_mib",
    "XTS_CMD_QUERY_NAME": "a lookup, with a socket: lookups, descriptors; one query to a name server makes one answer",
    "XTS_CMD_OPEN_DATAGRAM": "a socket, its window, what its SO_RCVBUF may hold: as CONNECT, and memory",
    "XTS_LINK_HELLO": "nothing: the queue's memory is there already, its clients are limited",
    "XTS_LINK_TOKEN": "nothing: the link has room for one, and the next takes its place",
    "XTS_RELAY_CARRIED": "a channel behind a relay, with its first HELLO: relayed_max, and its own tenant from then on",
}
#: Of the kernel, per message: inet_bind_bucket and inet_bind2_bucket.
IN_KERNEL = {"XTS_CMD_BIND": 256, "XTS_CMD_CONNECT_DATAGRAM": 256}
SO_TIMESTAMPING = 37
#: How much more, or less, than SECURITY.md says a figure may be: what malloc finds free differs from run to run.
MORE, LESS = 0.3, 1.5
#: Rows of SECURITY.md: whose account it is in. What is not here keeps nothing that would have to be charged.
WINDOW, SOCKET = "`spill_mib`, as its window", "12 KiB of memory for each socket"
FIRST_BYTE = "SEND of one byte, the first that TCP does not take"
ROWS = {
    FIRST_BYTE: WINDOW,
    "SEND of 100 bytes or more": WINDOW,
    "SEND_PDU of one byte": WINDOW,
    "BIND": SOCKET,
    "CONNECT_DATAGRAM": SOCKET,
    "SEND_DATAGRAMS, the header of a datagram that never ends": WINDOW,
    "SHARE": "12 KiB of memory for each name, `listeners`",
    "RETURN of one byte": "`spill_mib`, with what is allocated for it",
    "RETURN_DATAGRAMS, an empty one": "`spill_mib`, with what is allocated for it",
    "SETSOCKOPT that attaches a filter": "`filters`, and 64 bytes of memory for each instruction",
    "SETSOCKOPT that joins a group (IPv4)": "`groups`, and 1 KiB of memory for each",
    "SETSOCKOPT that joins a group, from one source": "the same, and one more of `groups`",
    "SETSOCKOPT that joins a group (IPv6)": "`groups`, and 1 KiB of memory for each",
}
OTHERS = "other SETSOCKOPT, GETSOCKOPT, PARK, CLAIM, TAKE, NEWCONN_ACK, messages of the link"
OTHERS_MOST = 0.4
#: Of a message, or of a test below: its row.
LABELS = {
    "XTS_CMD_SEND_PDU": "SEND_PDU of one byte",
    "XTS_CMD_BIND": "BIND",
    "XTS_CMD_CONNECT_DATAGRAM": "CONNECT_DATAGRAM",
    "XTS_CMD_SEND_DATAGRAMS": "SEND_DATAGRAMS, the header of a datagram that never ends",
    "XTS_CMD_SHARE": "SHARE",
    "XTS_CMD_RETURN": "RETURN of one byte",
    "XTS_CMD_RETURN_DATAGRAMS": "RETURN_DATAGRAMS, an empty one",
}
DOCUMENT = Path(__file__).resolve().parents[3] / "dpu_proxy" / "SECURITY.md"


@dataclass(frozen=True)
class Join:
    """A form of joining a group: `kernel`, its structs as slabs of Linux 6.18 have them (ip_mc_socklist, ip_mc_list,
    netdev_hw_addr; with a source ip_sf_socklist and ip_sf_list; ipv6_mc_socklist and ifmcaddr6)."""

    label: str
    domain: int
    level: int
    option: int
    kernel: int
    value: Callable[[int, int], bytes]


_LOOPBACK4, IP_ADD_SOURCE_MEMBERSHIP = socket.inet_aton("127.0.0.1"), 39


def _group(*last: int, first: int = 239) -> bytes:
    return bytes((first, 9, *last))


JOINS = [
    Join(
        "SETSOCKOPT that joins a group (IPv4)",
        *(4, socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, 64 + 192 + 128),
        lambda at, group: _group(at, group) + _LOOPBACK4,
    ),
    Join(
        "SETSOCKOPT that joins a group, from one source",
        *(4, socket.IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, 64 + 192 + 128 + 64 + 32),
        lambda at, group: _group(at, group, first=232) + _LOOPBACK4 + _group(at, group, first=10),
    ),
    Join(
        "SETSOCKOPT that joins a group (IPv6)",
        *(6, socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, 64 + 256 + 128),
        lambda at, group: socket.inet_pton(socket.AF_INET6, f"ff05::{at:x}:{group:x}") + struct.pack("=I", 1),
    ),
]


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def given_out() -> int:
    """Bytes that malloc has given out, in all arenas."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    gc.collect()
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


@dataclass
class Bed:
    """A host with many connections to one server."""

    worker: Worker
    host: ScriptedHost
    server: socket.socket
    stack: ExitStack

    def connections(self, count: int) -> list[Conn]:
        made = [connected(self.host, self.server) for _ in range(count)]
        for c in made:
            self.stack.enter_context(c.peer)
        return made

    def sockets(self, count: int) -> list[tuple[int, int]]:
        """Numbers and identifiers of sockets that are not connected."""
        made = []
        for _ in range(count):
            number = self.host.new_socket()
            made.append((number, self.option("XTS_CMD_SETSOCKOPT", 0, number).fields["proxy_id"]))
        return made

    def option(self, name: str, id: int, number: int) -> codec.Frame:
        what = {"level": socket.SOL_SOCKET, "option": socket.SO_KEEPALIVE}
        fields = {"xts_socket": number, "token": 1, "domain": 4} | what
        self.host.send(name, struct.pack("i", 1), id=id, **fields)
        return self.host.expect("XTS_REPLY_SOCKOPT_ACK")


@pytest.fixture
def bed() -> Iterator[Bed]:
    with socket.create_server((LOOPBACK, 0), backlog=512) as server, Worker() as worker, ExitStack() as stack:
        server.settimeout(5)
        host = stack.enter_context(
            worker.attach(features=FEATURES | DATAGRAM | SHARED_DATAGRAM | CANCEL | LISTENING)
        ).open()
        yield Bed(worker, host, server, stack)


#: What is done so often, and how many bytes of frames that takes; preparations come before, and are not counted.
Measured = tuple[Callable[[], None], int]


def documented() -> dict[str, str]:
    """What each message keeps, by SECURITY.md."""
    rows = (line.strip("| ").split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| "))
    return {row[0]: row[1] for row in rows if len(row) == 3}


def is_documented(label: str, figure: float) -> None:
    """SECURITY.md says so."""
    if label not in ROWS:
        assert figure <= OTHERS_MOST, f"{label}: {figure:.1f} needs a row of its own"
        assert documented()[OTHERS] == f"{OTHERS_MOST} at most"
        return
    print(f"| {label} | {figure:.1f} | {ROWS[label]} |")
    said = float(documented()[label])
    assert said - LESS <= figure <= said + MORE, f"{label}: SECURITY.md says {said}"


def wire_bytes(name: str, payload: int = 0) -> int:
    return next(m.fixed_bytes for m in table.MESSAGES if m.name == name) + payload


def options(bed: Bed, name: str) -> Measured:
    number, proxy_id = bed.sockets(1)[0]
    return lambda: [bed.option(name, proxy_id, number) for _ in range(MANY)] and None, MANY * wire_bytes(name, 4)


def binds(bed: Bed) -> Measured:
    made = bed.sockets(MANY)

    def run() -> None:
        for number, proxy_id in made:
            local = codec.Endpoint.of(LOOPBACK, 0)
            bed.host.send("XTS_CMD_BIND", id=proxy_id, xts_socket=number, token=1, domain=4, local=local)
            assert bed.host.expect("XTS_REPLY_BIND_ACK").error == 0

    return run, MANY * wire_bytes("XTS_CMD_BIND")


def cancels(bed: Bed) -> Measured:
    """Of sockets that there are not."""

    def run() -> None:
        for number in range(MANY):
            bed.host.send("XTS_CMD_CANCEL", xts_socket=(1 << 31) + number)
            assert bed.host.expect("XTS_REPLY_RECV").flags == codec.flags("CLOSED")

    return run, MANY * wire_bytes("XTS_CMD_CANCEL")


def listeners(bed: Bed) -> list[tuple[int, int]]:
    made = bed.sockets(64)
    for number, proxy_id in made:
        fields = {"xts_socket": number, "token": 1, "domain": 4, "post_credits": 1, "backlog": 8}
        bed.host.send("XTS_CMD_LISTEN", id=proxy_id, **fields)
        assert bed.host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    return made


def listeners_shut(bed: Bed) -> Measured:
    made = listeners(bed)

    def run() -> None:
        for number, proxy_id in made:
            bed.host.send("XTS_CMD_SHUT_LISTENER", id=proxy_id, xts_socket=number, token=2)
            assert bed.host.expect("XTS_REPLY_SHUT_LISTENER_ACK").error == 0

    return run, 64 * wire_bytes("XTS_CMD_SHUT_LISTENER")


def shares(bed: Bed) -> Measured:
    made = listeners(bed)

    def run() -> None:
        for number, proxy_id in made:
            fields = {"xts_socket": number, "token": 2, "key": secrets.randbits(64) | 1, "keep_ms": KEEP_MS}
            bed.host.send("XTS_CMD_SHARE", id=proxy_id, **fields)
            assert bed.host.expect("XTS_REPLY_SHARE_ACK").error == 0

    return run, 64 * wire_bytes("XTS_CMD_SHARE")


def parks(bed: Bed) -> Measured:
    made, keys = bed.connections(64), [secrets.randbits(64) | 1 for _ in range(64)]

    def run() -> None:
        for c, key in zip(made, keys, strict=True):
            bed.host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=1, key=key, keep_ms=KEEP_MS)
            assert bed.host.expect("XTS_REPLY_PARK_ACK").error == 0

    return run, 64 * wire_bytes("XTS_CMD_PARK")


def claims(bed: Bed) -> Measured:
    def run() -> None:
        for _ in range(MANY):  # of what is not there; what is there was kept before
            fields = {"xts_socket": bed.host.new_socket(), "token": 1, "key": 5, "post_credits": 1, "unread": 0}
            bed.host.send("XTS_CMD_CLAIM", **fields)
            bed.host.expect("XTS_REPLY_CLAIM_ACK")

    return run, MANY * wire_bytes("XTS_CMD_CLAIM")


def named(bed: Bed, count: int) -> list[tuple[Conn, int]]:
    """Connections that have keys."""
    made = [(c, secrets.randbits(64) | 1) for c in bed.connections(count)]
    for c, key in made:
        fields = {"xts_socket": c.number, "token": 2, "key": key, "keep_ms": KEEP_MS}
        bed.host.send("XTS_CMD_SHARE", id=c.id, **fields)
        assert bed.host.expect("XTS_REPLY_SHARE_ACK").error == 0
    return made


def takes(bed: Bed) -> Measured:
    made = named(bed, 64)

    def run() -> None:
        for _, key in made * (MANY // 64):
            fields = {"xts_socket": bed.host.new_socket(), "token": 1, "key": key, "post_credits": 1, "purpose": 3}
            bed.host.send("XTS_CMD_TAKE", **fields)
            bed.host.expect("XTS_REPLY_TAKE_ACK")

    return run, MANY * wire_bytes("XTS_CMD_TAKE")


def pieces_returned(bed: Bed) -> Measured:
    """Of one byte each: what is allocated with it is the most."""
    ((c, key),) = named(bed, 1)
    c.peer.sendall(bytes(MANY))
    while c.read_bytes < MANY:
        c.read()
    bed.host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=1, key=key, keep_ms=KEEP_MS)
    assert bed.host.expect("XTS_REPLY_PARK_ACK").error == 0

    def run() -> None:
        for _ in range(MANY):
            bed.host.send("XTS_CMD_RETURN", b"x", key=key, kind=1, record_bytes=0)

    return run, MANY * wire_bytes("XTS_CMD_RETURN", 1)


def accepts(bed: Bed) -> Measured:
    """Of several listeners, so that there are enough: what this process itself keeps meanwhile is some 500 bytes."""
    offers = []
    for _ in range(MANY // 32):
        fields = {"xts_socket": bed.host.new_socket(), "token": 1, "domain": 4, "post_credits": 64, "backlog": 64}
        bed.host.send("XTS_CMD_LISTEN", **fields)
        port = bed.host.expect("XTS_REPLY_LISTEN_ACK").fields["local"].port
        for _ in range(32):
            bed.stack.enter_context(socket.create_connection((LOOPBACK, port)))
            offers.append(bed.host.expect("XTS_REPLY_NEWCONN").fields["proxy_id"])

    def run() -> None:
        for offer in offers:
            bed.host.send("XTS_CMD_NEWCONN_ACK", id=offer, xts_socket=bed.host.new_socket(), post_credits=64)

    return run, len(offers) * wire_bytes("XTS_CMD_NEWCONN_ACK")


def pdus(bed: Bed) -> Measured:
    bed.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c = connected(bed.host, bed.server, PREFIX)
    bed.stack.enter_context(c.peer)
    while not bed.worker.channel().spill_bytes:  # until TCP takes no more
        while c.held < 2 * PDU:
            c.receive()
        c.send_pdu(bytes(PDU))
    count = min(MANY, c.held // (table.PDU_CREDITS + 1))

    def run() -> None:
        for _ in range(count):
            c.send_pdu(b"x")

    return run, count * wire_bytes("XTS_CMD_SEND_PDU", 1)


def datagram_sockets(bed: Bed, count: int) -> list[tuple[int, int]]:
    """Numbers and identifiers."""
    made = [open_datagram(bed.host) for _ in range(count)]
    return [(number, answer.fields["proxy_id"]) for number, answer in made]


def datagram_connects(bed: Bed) -> Measured:
    made, peer = datagram_sockets(bed, MANY), codec.Endpoint.of(LOOPBACK, 9)

    def run() -> None:
        for number, proxy_id in made:
            bed.host.send("XTS_CMD_CONNECT_DATAGRAM", id=proxy_id, xts_socket=number, token=1, peer=peer)
            assert bed.host.expect("XTS_REPLY_CONNECT_DATAGRAM_ACK").error == 0

    return run, MANY * wire_bytes("XTS_CMD_CONNECT_DATAGRAM")


def datagrams_cut_off(bed: Bed) -> Measured:
    """The header of a datagram, and never its data: the worst that SEND_DATAGRAMS can do."""
    made = datagram_sockets(bed, MANY)
    head = datagram.encode(datagram.Datagram(data_bytes=60_000))

    def send(proxy_id: int) -> None:
        bed.host.send("XTS_CMD_SEND_DATAGRAMS", head, id=proxy_id, flags=codec.flags("MORE"))

    def run() -> None:
        for _, proxy_id in made:
            send(proxy_id)

    send(datagram_sockets(bed, 1)[0][1])  # the worker's first spill makes the thread-local memory of its module
    return run, MANY * wire_bytes("XTS_CMD_SEND_DATAGRAMS", len(head))


def datagram_shares(bed: Bed) -> Measured:
    made = datagram_sockets(bed, 64)

    def run() -> None:
        for number, proxy_id in made:
            fields = {"xts_socket": number, "token": 2, "key": secrets.randbits(64) | 1, "keep_ms": KEEP_MS}
            bed.host.send("XTS_CMD_SHARE", id=proxy_id, **fields)
            assert bed.host.expect("XTS_REPLY_SHARE_ACK").error == 0

    return run, 64 * wire_bytes("XTS_CMD_SHARE")


def datagram_options(bed: Bed, level: int, option: int, value: bytes, error: int = 0) -> Measured:
    made = datagram_sockets(bed, MANY)

    def run() -> None:
        for number, proxy_id in made:
            fields = {"xts_socket": number, "token": 1, "domain": 4, "level": level, "option": option}
            bed.host.send("XTS_CMD_SETSOCKOPT", value, id=proxy_id, **fields)
            assert bed.host.expect("XTS_REPLY_SOCKOPT_ACK").error == error

    return run, MANY * wire_bytes("XTS_CMD_SETSOCKOPT", len(value))


def datagrams_returned(bed: Bed) -> Measured:
    """Empty ones, each in a message of its own: what is allocated with it is the most."""
    key = secrets.randbits(64) | 1
    udp = Udp.open(bed.host, local=codec.Endpoint.of(LOOPBACK, 0))
    with udp_peer() as peer:
        for _ in range(MANY):
            peer.sendto(b"", (LOOPBACK, udp.local.port))
            udp.receive(credit=False)
    assert share(bed.host, key, udp.id, udp.number, KEEP_MS).error == 0
    record = datagram.encode(datagram.Datagram())

    def run() -> None:
        for _ in range(MANY):
            bed.host.send("XTS_CMD_RETURN_DATAGRAMS", record, id=udp.id)

    return run, MANY * wire_bytes("XTS_CMD_RETURN_DATAGRAMS", len(record))


BEDS: dict[str, Callable[[Bed], Measured]] = {
    "XTS_CMD_SETSOCKOPT": lambda bed: options(bed, "XTS_CMD_SETSOCKOPT"),
    "XTS_CMD_GETSOCKOPT": lambda bed: options(bed, "XTS_CMD_GETSOCKOPT"),
    "XTS_CMD_BIND": binds,
    "XTS_CMD_CANCEL": cancels,
    "XTS_CMD_SHARE": shares,
    "XTS_CMD_SHUT_LISTENER": listeners_shut,
    "XTS_CMD_PARK": parks,
    "XTS_CMD_CLAIM": claims,
    "XTS_CMD_TAKE": takes,
    "XTS_CMD_RETURN": pieces_returned,
    "XTS_CMD_NEWCONN_ACK": accepts,
    "XTS_CMD_SEND_PDU": pdus,
    "XTS_CMD_CONNECT_DATAGRAM": datagram_connects,
    "XTS_CMD_SEND_DATAGRAMS": datagrams_cut_off,
    "XTS_CMD_RETURN_DATAGRAMS": datagrams_returned,
}
#: The same messages for datagram sockets. A filter that is attached is measured by itself (below).
OF_DATAGRAMS: dict[str, Callable[[Bed], Measured]] = {
    "XTS_CMD_SHARE": datagram_shares,
    "SO_TIMESTAMPING": lambda bed: datagram_options(bed, socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("=I", 0x9A)),
    "SO_DETACH_FILTER": lambda bed: datagram_options(bed, socket.SOL_SOCKET, SO_DETACH_FILTER, bytes(4), errno.ENOENT),
    "SO_XTS_FILTER": lambda bed: datagram_options(
        bed, table.SOL_XTS, table.OPTION_FILTER, b"f" * table.FILTER_NAME_BYTES_MAX, errno.ENOENT
    ),
}
#: Measured by itself (below), or kept where the push that asked for it has made room.
APART = {"XTS_CMD_SEND": "spilled", "XTS_CMD_GIVE_BACK": "what IOCTL has made room for"}
#: The link, or what is below it, handles these in the frame they came in: HEADED and ARQ are their own messages with a
#: head, PROBE meets the XDP program. CATCH_UP: a new one takes the place of the last (channel/gather.c).
AT_ONCE = {
    *("XTS_LINK_BUNDLE", "XTS_LINK_FRAME_ACK", "XTS_LINK_PING", "XTS_LINK_PONG", "XTS_LINK_CLOCK", "XTS_LINK_GOODBYE"),
    *("XTS_LINK_CATCH_UP", "XTS_LINK_HEADED", "XTS_LINK_PROBE", "XTS_LINK_ARQ", "XTS_LINK_PART"),
    "XTS_LINK_OVER",  # looks keys up, and ends connections
    "XTS_CMD_RESUME",  # as CLAIM, with numbers that are only compared
    "XTS_CMD_MOVE_ACK",  # answers a MOVE and ends the epoch, or ends the link
}


def test_every_message_of_a_host_has_its_place_here() -> None:
    """A new message has to be measured, or be one that makes something with an account of its own."""
    of_hosts = {m.name for m in table.MESSAGES if m.sender in ("host", "both")}
    assert of_hosts == {*MAKES, *BEDS, *APART, *AT_ONCE}


@pytest.mark.parametrize("name", BEDS)
def test_a_message_keeps_at_most_eight_bytes_for_each_of_its_own(bed: Bed, name: str) -> None:
    keeps_little(bed, name, *BEDS[name](bed))


@pytest.mark.parametrize("name", OF_DATAGRAMS)
def test_so_does_one_about_datagram_sockets(bed: Bed, name: str) -> None:
    keeps_little(bed, name, *OF_DATAGRAMS[name](bed))


def keeps_little(bed: Bed, name: str, run: Callable[[], None], sent: int) -> None:
    bed.worker.stats()
    given_out()  # the first call of a process makes what it keeps: 1.8 KB
    before = given_out()
    run()
    bed.worker.stats()  # carried out: it answers between two rounds
    kept = max(0, given_out() - before)
    if name in IN_KERNEL:
        kept += IN_KERNEL[name] * sent // wire_bytes(name)
    is_documented(LABELS.get(name, name), kept / sent)
    assert round(kept / sent, 1) <= MOST  # of 256 messages: malloc rounds
    goodbye(bed.host)


def test_a_filter_keeps_no_more_than_it_is_charged(bed: Bed) -> None:
    """SETSOCKOPT makes a program in the kernel, of which each instruction is counted and charged as memory."""
    ((number, proxy_id),) = datagram_sockets(bed, 1)
    charged, before = bed.worker.used("socket_bytes"), given_out()
    fields = {"token": 1, "domain": 4, "level": socket.SOL_SOCKET, "option": SO_ATTACH_FILTER}
    bed.host.send("XTS_CMD_SETSOCKOPT", of_length(256), id=proxy_id, xts_socket=number, **fields)
    assert bed.host.expect("XTS_REPLY_SOCKOPT_ACK").error == 0
    bed.worker.stats()
    cost = bed.worker.used("socket_bytes") - charged
    assert bed.worker.used("filters") == 256
    assert cost / wire_bytes("XTS_CMD_SETSOCKOPT", 8 * 256) <= MOST
    assert given_out() - before <= cost
    is_documented("SETSOCKOPT that attaches a filter", cost / wire_bytes("XTS_CMD_SETSOCKOPT", 8 * 256))
    goodbye(bed.host)


@pytest.mark.parametrize("join", JOINS, ids=lambda join: join.label.removeprefix("SETSOCKOPT that joins "))
def test_joining_a_group_keeps_no_more_than_it_is_charged(bed: Bed, join: Join) -> None:
    """SETSOCKOPT makes a membership, which is counted by itself (limits.groups) and charged as memory."""
    made, each = [open_datagram(bed.host, domain=join.domain) for _ in range(32)], 16
    options = {"token": 1, "domain": join.domain, "level": join.level, "option": join.option}
    charged, before = bed.worker.used("socket_bytes"), given_out()
    for at, (number, answer) in enumerate(made):
        for group in range(each):
            value, proxy_id = join.value(at, group), answer.fields["proxy_id"]
            bed.host.send("XTS_CMD_SETSOCKOPT", value, id=proxy_id, xts_socket=number, **options)
            assert bed.host.expect("XTS_REPLY_SOCKOPT_ACK").error == 0
    bed.worker.stats()
    kept = (given_out() - before) / (len(made) * each) + join.kernel
    assert bed.worker.used("groups") == len(made) * each * (2 if "source" in join.label else 1)
    is_documented(join.label, kept / wire_bytes("XTS_CMD_SETSOCKOPT", len(join.value(0, 0))))
    assert kept <= (bed.worker.used("socket_bytes") - charged) / (len(made) * each)
    goodbye(bed.host)


@pytest.mark.parametrize("length", [1, 100, 1000, 60_000])
def test_what_is_spilled_is_not_many_times_what_was_sent(tmp_path: Path, length: int) -> None:
    """The first byte of each of many connections, and a few more: the worst that SEND can do."""
    library = tmp_path / "spill.so"
    command = [
        compiler(),
        "-shared",
        "-fPIC",
        "-O1",
        "-D_GNU_SOURCE",
        f"-I{WORKER}",
        *(str(WORKER / name) for name in ("connection/spill.c", "ulp/lasting.c", "ulp/block_lists.c")),
    ]
    subprocess.run([*command, "-o", str(library)], check=True)
    native = ctypes.CDLL(str(library))

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_char_p), ("bytes", ctypes.c_size_t)]

    buffers = [ctypes.create_string_buffer(64) for _ in range(MANY)]
    piece = Piece(b"x" * length, length)
    before, most = given_out(), 0.0
    for messages in range(1, 4):
        for buffer in buffers:
            assert native.spill_append(buffer, ctypes.byref(piece), 1, 0) == 0
        kept, sent = given_out() - before, messages * MANY * wire_bytes("XTS_CMD_SEND", length)
        most = max(most, kept / sent)
    if length <= 100:
        is_documented("SEND of 100 bytes or more" if length > 1 else FIRST_BYTE, most)
    assert most <= MOST
    for buffer in buffers:
        native.spill_free(buffer)
