"""Groups in the worker: what tenants see of each other, policy, limits, hosts that send nonsense. All on loopback."""

from __future__ import annotations

import errno
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.datagrams import LOOPBACK, Udp, host, host_of
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.worker import wait_for, worker
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint
from xts_messages.wire.datagram import Datagram

__all__ = ["host", "worker"]

IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
JOIN, LEAVE, JOIN_SOURCE, MSFILTER, IP_MULTICAST_ALL, IP_PKTINFO = 42, 45, 46, 48, 49, 8
IP_UNBLOCK_SOURCE, IP_BLOCK_SOURCE = 37, 38
GROUP, OTHER = "239.7.6.1", "239.7.6.2"
ANY = Endpoint.of("0.0.0.0", 0)
LISTEN, CONNECT = 2, 1
#: What an option of nonsense may be answered with.
EXPECTED = {
    *(0, errno.EINVAL, errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENOPROTOOPT, errno.ENOBUFS),
    *(errno.EACCES, errno.EPERM, errno.ENXIO),
}


def mreq(group: str, interface: str = LOOPBACK) -> bytes:
    return socket.inet_aton(group) + socket.inet_aton(interface)


def group_req(group: str, interface: int = 1) -> bytes:
    address = struct.pack("=HH", socket.AF_INET, 0) + socket.inet_aton(group)
    return struct.pack("=Ixxxx", interface) + address.ljust(128, b"\0")


def join(udp: Udp, group: str = GROUP) -> int:
    return udp.set(IP, socket.IP_ADD_MEMBERSHIP, mreq(group))


def reusing(host: ScriptedHost, local: Endpoint = ANY) -> Udp:
    """A socket with SO_REUSEADDR, bound."""
    udp = Udp.open(host)
    assert udp.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) == 0
    answer = udp.bind(local)
    assert answer.error == 0, errno.errorcode[answer.error]
    udp.local = answer.fields["local"]
    return udp


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        yield made


def words(udp: Udp, last: bytes) -> list[bytes]:
    """What comes, up to the last."""
    got = []
    while not got or got[-1] != last:
        got.append(udp.receive().data)
    return got


# --- tenants -----------------------------------------------------------------------------------------------------


def test_all_means_the_groups_of_the_tenant(sender: socket.socket) -> None:
    """Its sockets are with two workers; another tenant's group does not reach it, though its socket wants all."""
    one, two = make_tenant("one", 1), make_tenant("two", 2)
    with Worker() as worker, Worker() as other, ExitStack() as stack:
        hosts = [
            stack.enter_context(host_of(place, epoch=epoch, tenant=tenant))
            for epoch, (place, tenant) in enumerate([(worker, one), (other, one), (worker, two), (worker, one)], 1)
        ]
        everything = reusing(hosts[0])
        port = everything.local.port
        member, stranger = Udp.open(hosts[1]), Udp.open(hosts[2])
        assert join(stranger, OTHER) == 0
        sender.sendto(b"of nobody here", (OTHER, port))
        sender.sendto(b"direct", (LOOPBACK, port))
        assert words(everything, b"direct") == [b"direct"]
        assert join(member) == 0  # from now on the kernel gives it all, and the proxy says what is the tenant's
        sender.sendto(b"foreign", (OTHER, port))
        sender.sendto(b"ours", (GROUP, port))
        sender.sendto(b"direct", (LOOPBACK, port))
        assert words(everything, b"direct") == [b"ours", b"direct"]
        late = reusing(hosts[3], Endpoint.of("0.0.0.0", port))
        assert late.set(IP, IP_PKTINFO, 1) == 0
        sender.sendto(b"foreign", (OTHER, port))
        sender.sendto(b"ours", (GROUP, port))
        told = late.receive()
        assert told.data == b"ours" and told.control("PKTINFO")
        member.close()
        assert stranger.set(IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP)) == 0
        sender.sendto(b"not ours any more", (GROUP, port))
        sender.sendto(b"direct", (LOOPBACK, port))
        assert words(late, b"direct") == [b"direct"]


def test_a_join_on_an_interface_that_has_not_been_listed_yet(sender: socket.socket) -> None:
    """It names the interface by an address: of one that has just come, the worker does not know the number."""
    with (
        Worker(interfaces_listed=0) as worker,
        host_of(worker) as host,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as of_the_device,
    ):
        of_the_device.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP))  # so the kernel delivers to the group
        of_the_device.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, mreq(OTHER))
        udp = reusing(host)
        port = udp.local.port
        assert udp.set(IP, JOIN, group_req("239.7.6.3")) == 0  # what the tenant gets is filtered from now on
        assert join(udp) == 0
        for option in (IP_BLOCK_SOURCE, IP_UNBLOCK_SOURCE):
            source = socket.inet_aton(LOOPBACK) + socket.inet_aton("10.1.1.1")
            assert udp.set(IP, option, socket.inet_aton(GROUP) + source) == 0
        sender.sendto(b"of nobody here", (OTHER, port))
        sender.sendto(b"the group's", (GROUP, port))
        assert udp.receive().data == b"the group's"
        assert udp.set(IP, socket.IP_DROP_MEMBERSHIP, mreq(GROUP)) == 0
        sender.sendto(b"left", (GROUP, port))
        sender.sendto(b"direct", (LOOPBACK, port))
        assert words(udp, b"direct") == [b"direct"]


def test_a_turn_of_what_is_for_nobody_is_not_the_last(sender: socket.socket) -> None:
    """Datagrams of another tenant's group fill a turn, and nothing is left of them; what comes behind them arrives."""
    one, two = make_tenant("one", 1), make_tenant("two", 2)
    with Worker() as worker, host_of(worker, tenant=one) as first, host_of(worker, epoch=2, tenant=two) as second:
        everything, stranger = reusing(first), Udp.open(second)
        assert join(stranger, OTHER) == join(everything) == 0
        for _ in range(50):
            for _ in range(100):
                sender.sendto(b"foreign", (OTHER, everything.local.port))
            sender.sendto(b"direct", (LOOPBACK, everything.local.port))
            assert words(everything, b"direct") == [b"direct"]


def test_tenants_may_be_bound_to_one_group_and_not_to_one_port(sender: socket.socket) -> None:
    one, two = make_tenant("one", 1), make_tenant("two", 2)
    with Worker() as worker, host_of(worker, tenant=one) as first, host_of(worker, epoch=2, tenant=two) as second:
        mine = reusing(first, Endpoint.of(GROUP, 0))
        port = mine.local.port
        theirs = reusing(second, Endpoint.of(GROUP, port))
        wild = Udp.open(second)
        assert wild.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) == 0
        assert wild.bind(Endpoint.of("0.0.0.0", port)).error == 0  # unicast to it is nobody's yet
        late = Udp.open(first)
        assert late.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) == 0
        assert late.bind(Endpoint.of("0.0.0.0", port)).error == errno.EADDRINUSE
        assert join(mine) == join(theirs) == 0
        sender.sendto(b"to both", (GROUP, port))
        assert mine.receive().data == theirs.receive().data == b"to both"


# --- policy -------------------------------------------------------------------------------------------------------


def test_loopback_is_the_devices_own(sender: socket.socket) -> None:
    rule = {"own": False, "action": LISTEN | CONNECT}
    with Worker(rule=rule) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        for value in (mreq(GROUP), mreq(GROUP) + struct.pack("=i", 1)):
            assert udp.set(IP, socket.IP_ADD_MEMBERSHIP, value) == errno.EACCES
            assert udp.set(IP, socket.IP_MULTICAST_IF, value) == errno.EACCES
        assert udp.set(IP, JOIN, group_req(GROUP)) == errno.EACCES
        for address in (LOOPBACK, "10.77.99.1"):  # the second is one of lo's, too
            assert udp.set(IP, socket.IP_MULTICAST_IF, socket.inet_aton(address)) == errno.EACCES
        six = Udp.open(host, domain=6)
        interface = struct.pack("=I", 1)
        group = socket.inet_pton(socket.AF_INET6, "ff15::7")
        assert six.set(IPV6, socket.IPV6_JOIN_GROUP, group + interface) == errno.EACCES
        assert six.set(IPV6, socket.IPV6_MULTICAST_IF, interface) == errno.EACCES
        assert worker.used("groups") == 0


def test_joining_is_listening_at_the_sockets_port(sender: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    # One rule: own addresses, and groups are none; so what decides about groups is the default, which denies.
    with Worker(False, rule={"own": True}) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        answer = udp.set_answer(IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP))
        assert (answer.error, answer.refusal) == (errno.EACCES, table.REFUSALS["LISTEN_POLICY"][0])
    everywhere = {"own": False, "ip_version": 0, "port_first": port, "port_last": port}
    with Worker(False, rule=everywhere) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        assert udp.set(IP, JOIN, group_req(GROUP, 0)) in (0, errno.ENODEV)  # at this port it might
        elsewhere = reusing(host)
        assert elsewhere.set(IP, JOIN, group_req(GROUP, 0)) == errno.EACCES


# --- limits -------------------------------------------------------------------------------------------------------


def test_memberships_and_sources_are_counted(worker: Worker, host: ScriptedHost) -> None:
    udp = Udp.open(host)
    assert join(udp) == 0 and worker.used("groups") == 1
    assert join(udp) == errno.EADDRINUSE and worker.used("groups") == 1
    source = socket.inet_aton(OTHER) + socket.inet_aton(LOOPBACK) + socket.inet_aton("10.0.0.1")
    assert udp.set(IP, 39, source) == 0 and worker.used("groups") == 3
    assert udp.set(IP, 40, source) == 0 and worker.used("groups") == 1
    block = socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK) + socket.inet_aton("10.0.0.1")
    assert udp.set(IP, 38, block) == 0 and worker.used("groups") == 2
    assert udp.set(IP, socket.IP_DROP_MEMBERSHIP, mreq(GROUP)) == 0 and worker.used("groups") == 0
    assert join(udp) == 0
    udp.close()
    wait_for(lambda: worker.used("groups") == 0, "a closed socket is a member")


def test_a_thousand_groups_are_refused_and_everybody_else_goes_on(sender: socket.socket) -> None:
    greedy, other = make_tenant("greedy", 1, groups=30), make_tenant("other", 2)
    with Worker() as worker, host_of(worker, tenant=greedy) as host, host_of(worker, epoch=2, tenant=other) as second:
        bystander = reusing(second)
        answers = []
        for at in range(0, 1000, 25):
            udp = Udp.open(host)
            answers += [
                udp.set_answer(IP, socket.IP_ADD_MEMBERSHIP, mreq(f"239.8.{at // 25}.{number}")) for number in range(25)
            ]
        errors = [(answer.error, answer.refusal) for answer in answers]
        assert errors.count((0, 0)) == 30
        kernels, tenants = ((errno.ENOBUFS, table.REFUSALS[name][0]) for name in ("DEVICE_GROUPS", "GROUPS"))
        assert set(errors) == {(0, 0), kernels, tenants} and errors[20] == kernels
        assert join(bystander) == 0
        sender.sendto(b"still here", (GROUP, bystander.local.port))
        assert bystander.receive().data == b"still here"


def test_nonsense_is_answered_with_an_errno(worker: Worker, host: ScriptedHost) -> None:
    """Options of any length and content: what the kernel or the proxy says of them, and no membership that is not
    counted."""
    chance = random.Random(14)
    udp, six = Udp.open(host), Udp.open(host, domain=6)
    for _ in range(2000):
        one = chance.choice((udp, six))
        level, option = chance.choice((IP, IPV6)), chance.choice((8, 17, 20, 21, 29, 32, *range(35, 50)))
        value = bytearray(chance.randbytes(chance.choice((0, 1, 4, 8, 12, 16, 20, 136, 144, 264, 300))))
        if chance.random() < 0.7:
            for at in (0, 12):
                value[at : at + 4] = chance.choice((socket.inet_aton(GROUP), b"\1\0\0\0", bytes(4)))[: len(value) - at]
        assert one.set(level, option, bytes(value)) in EXPECTED
    udp.close()
    six.close()
    wait_for(lambda: worker.used("groups") == 0, "a closed socket is a member")


def test_interfaces_are_told_within_the_length_asked_for(host: ScriptedHost) -> None:
    udp = Udp.open(host)
    for room, after, expected in ((512, 0, b"1 lo multicast 127.0.0.1\n"), (24, 0, b""), (0, 0, b""), (512, 1, b"")):
        answer = udp._call(
            "XTS_CMD_GETSOCKOPT", "XTS_REPLY_SOCKOPT_ACK", level=table.SOL_XTS, option=after, payload=bytes(room)
        )
        assert (answer.error, bytes(answer.payload)) == (0, expected)


def test_time_stamps_of_interfaces_are_told_apart(host: ScriptedHost) -> None:
    udp = Udp.open(host)
    for room, after, expected in ((512, 0, b"1 -1 26 0 0 0 0\n"), (9, 0, b""), (512, 1, b"")):
        answer = udp._call(
            *("XTS_CMD_GETSOCKOPT", "XTS_REPLY_SOCKOPT_ACK"),
            level=table.SOL_XTS,
            option=after | table.INTERFACE_STAMPS,
            payload=bytes(room),
        )
        assert (answer.error, bytes(answer.payload)) == (0, expected)


# --- sending ------------------------------------------------------------------------------------------------------


def test_hosts_hear_each_other(worker: Worker) -> None:
    """Two hosts of one proxy, and a host itself."""
    with host_of(worker) as one, host_of(worker, epoch=2) as two:
        member, also = reusing(one), None
        also = reusing(two, Endpoint.of("0.0.0.0", member.local.port))
        assert join(member) == join(also) == 0
        assert member.set(IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK)) == 0
        member.send(Datagram(b"to all", Endpoint.of(GROUP, member.local.port)))
        assert member.receive().data == also.receive().data == b"to all"
