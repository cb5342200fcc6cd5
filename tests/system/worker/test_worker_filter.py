"""Filters of datagram sockets in the worker: programs are bytes of a host, which are checked, counted and charged."""

from __future__ import annotations

import errno
import random
import socket

import pytest
from beds.classic_bpf import (
    ALL,
    CPU,
    FRAME,
    LD_B_IND,
    LDX_B_MSH,
    LDX_IMM,
    LDX_MEM,
    MARK,
    NETWORK_HEADER,
    PROTOCOL,
    QUEUE,
    SO_ATTACH_FILTER,
    SO_DETACH_FILTER,
    TAX,
    VLAN,
    begins_with,
    instruction,
    load_ancillary,
    load_byte,
    of_length,
    ret,
)
from beds.datagrams import FEATURES, LOOPBACK, NOBODY, Udp, endpoint_of, host, host_of, peer
from beds.scripted_host import ScriptedHost, Worker
from beds.share import KEEP_MS, SHARE, new_epoch, new_key, share
from beds.worker import wait_for, worker
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint
from xts_messages.wire.datagram import Datagram

__all__ = ["host", "peer", "worker"]

ANYWHERE = Endpoint.of(LOOPBACK, 0)
MOST = table.FILTER_BYTES_MAX // 8
#: What the proxy, or the kernel, says of a program that is random bytes.
EXPECTED = {0, errno.EINVAL, errno.EPERM, errno.ENOMEM}


def attach(udp: Udp, program: bytes) -> int:
    return udp.set(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def test_what_it_drops_does_not_come(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host, peer=endpoint_of(peer))
    udp.send(Datagram(b"here I am"))
    _, source = peer.recvfrom(100)
    assert attach(udp, begins_with(b"a")) == 0
    for word in (b"bird", b"ant", b"cat", b"ape"):
        peer.sendto(word, source)
    assert [udp.receive().data for _ in range(2)] == [b"ant", b"ape"]
    assert udp.set(socket.SOL_SOCKET, SO_DETACH_FILTER, 0) == 0
    peer.sendto(b"bird", source)
    assert udp.receive().data == b"bird" and udp.dropped == 2


INDEXED = instruction(LD_B_IND, 8)


@pytest.mark.parametrize(
    "program",
    [
        load_byte(FRAME),
        load_byte(FRAME + 6),
        load_byte(NETWORK_HEADER - 1),
        instruction(LDX_B_MSH, FRAME),
        instruction(LD_B_IND, FRAME),
        instruction(LD_B_IND, NETWORK_HEADER),
        instruction(LDX_IMM, FRAME) + INDEXED,
        load_byte(0) + instruction(TAX, 0) + INDEXED,
        INDEXED + instruction(LDX_MEM, 0),
    ],
    ids=range(9),
)
def test_the_frame_of_the_device_is_not_seen(host: ScriptedHost, program: bytes) -> None:
    """Neither by an offset of its own, nor by one that wraps around."""
    udp = Udp.open(host)
    answer = udp.set_answer(socket.SOL_SOCKET, SO_ATTACH_FILTER, program + ret(ALL))
    assert (answer.error, answer.flags) == (errno.EPERM, table.REFUSALS["FILTER_LOADS"][0])


@pytest.mark.parametrize(
    "program",
    [
        load_byte(NETWORK_HEADER + 8),  # TTL
        instruction(LDX_B_MSH, NETWORK_HEADER) + INDEXED,
        instruction(LDX_IMM, 20) + INDEXED,
        load_byte(0) + instruction(TAX, 0),  # and nothing is loaded by it
    ],
    ids=range(4),
)
def test_the_packet_is_seen(host: ScriptedHost, program: bytes) -> None:
    assert attach(Udp.open(host), program + ret(ALL)) == 0


@pytest.mark.parametrize("size", [0, 1, 7, 9, 8 * MOST + 8, 3000])
def test_bytes_that_are_no_program(host: ScriptedHost, size: int) -> None:
    udp = Udp.open(host)
    assert attach(udp, (ret(ALL) * 500)[:size]) == errno.EINVAL
    assert attach(udp, of_length(MOST)) == 0


def test_loads_of_what_is_the_devices(host: ScriptedHost) -> None:
    udp = Udp.open(host)
    assert attach(udp, load_ancillary(PROTOCOL) + ret(ALL)) == 0
    for what in (MARK, QUEUE, CPU, VLAN):
        assert attach(udp, load_ancillary(what) + ret(ALL)) == errno.EPERM
        assert attach(udp, ret(ALL) + load_ancillary(what) + ret(ALL)) == errno.EPERM, "unreached, and refused too"
    answer = udp.set_answer(socket.SOL_SOCKET, SO_ATTACH_FILTER, load_ancillary(CPU) + ret(0))
    assert answer.flags == table.REFUSALS["FILTER_LOADS"][0]


def test_instructions_are_counted_for_the_tenant() -> None:
    with Worker(filters=10) as small, host_of(small) as made:
        one, two = Udp.open(made), Udp.open(made)
        charged = small.used("socket_bytes")
        assert attach(one, of_length(8)) == 0 and small.used("filters") == 8
        assert small.used("socket_bytes") > charged
        assert attach(two, of_length(3)) == errno.ENOBUFS
        assert attach(two, of_length(2)) == 0 and small.used("filters") == 10
        assert attach(one, of_length(9)) == errno.ENOBUFS and small.used("filters") == 10
        assert attach(one, of_length(4)) == 0 and small.used("filters") == 6
        assert attach(two, b"\xff" * 32) == errno.EINVAL and small.used("filters") == 6
        assert one.set(socket.SOL_SOCKET, SO_DETACH_FILTER, 0) == 0 and small.used("filters") == 2
        assert one.set(socket.SOL_SOCKET, SO_DETACH_FILTER, 0) == errno.ENOENT
        two.close()
        one.settle()
        wait_for(lambda: small.used("filters") == 0, "a closed socket has a filter")
        assert small.used("socket_bytes") <= charged


def test_none_are_taken_where_none_are_allowed() -> None:
    with Worker(filters=0) as none, host_of(none) as made:
        assert attach(Udp.open(made), ret(ALL)) == errno.ENOBUFS


def test_a_shared_socket_is_charged_until_its_last_member_closes_it(worker: Worker) -> None:
    features = FEATURES | SHARE | table.FEATURES["SHARE_DATAGRAM"][0]
    with (
        worker.attach(new_epoch(), features=features) as first,
        worker.attach(new_epoch(), features=features) as second,
        worker.attach(new_epoch(), features=features) as third,
    ):
        udp, key = Udp.open(first.open(), local=ANYWHERE), new_key()
        assert attach(udp, of_length(8)) == 0
        assert share(first, key, udp.id, udp.number, KEEP_MS).error == 0
        others = []
        for host in (second, third):
            answer = share(host.open(), key)
            others.append(Udp(host, answer.id, answer.fields["proxy_id"], 0, 0, answer.fields["local"], NOBODY))
            others[-1].take()
        assert worker.used("filters") == 8
        assert attach(others[0], of_length(5)) == 0 and worker.used("filters") == 5, "it has one filter"
        udp.close()
        others[0].close()
        others[1].settle()
        assert worker.used("filters") == 5, "those who have set it have gone, and the filter has not"
        assert others[1].set(socket.SOL_SOCKET, SO_DETACH_FILTER, 0) == 0 and worker.used("filters") == 0
        assert attach(others[1], of_length(3)) == 0 and worker.used("filters") == 3
        others[1].close()
        wait_for(lambda: worker.used("filters") == 0, "a closed socket has a filter")


def test_random_programs(host: ScriptedHost, worker: Worker, peer: socket.socket) -> None:
    """Whatever a host sends, its socket works afterwards."""
    chance = random.Random(6)
    udp = Udp.open(host, peer=endpoint_of(peer))
    udp.send(Datagram(b"here I am"))
    _, source = peer.recvfrom(100)
    codes = [0x20, 0x28, 0x30, 0x40, 0x80, 0xB1, 0x15, 0x25, 0x05, 0x06, 0x16, 0x02, 0x60, 0x04, 0x34, 0x07, 0x87]
    for _ in range(1000):
        program = b"".join(
            chance.choice(codes).to_bytes(2, "little") + chance.randbytes(2) + chance.randbytes(4)
            for _ in range(chance.randrange(1, 20))
        )
        assert attach(udp, program + ret(chance.choice((0, 9, ALL)))) in EXPECTED
        peer.sendto(b"through it", source)
    assert attach(udp, begins_with(b"!")) == 0
    while udp.ready or udp.host.backlog:
        udp.receive()
    peer.sendto(b"!", source)
    while udp.receive().data != b"!":
        pass
    udp.close()
    wait_for(lambda: worker.used("filters") == 0, "a closed socket has a filter")
