"""Datagram sockets that several hosts have: SHARE of the worker, against hosts made by hand. Hosts of two workers take
from one socket of the kernel."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from beds.datagrams import FEATURES, LOOPBACK, NOBODY, WINDOW, Udp, endpoint_of, peer
from beds.scripted_host import ScriptedHost, Worker
from beds.share import KEEP_MS, QUIET_MS, SHARE, goodbye, new_epoch, new_key, other_worker, share, worker
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram

__all__ = ["other_worker", "peer", "worker"]  # fixtures

SHARE_DATAGRAM = table.FEATURES["SHARE_DATAGRAM"][0] | table.FEATURES["RETURN_DATAGRAM"][0]
ANYWHERE = Endpoint.of(LOOPBACK, 0)
IP_PKTINFO = 8
GROUP = "239.255.77.8"

Attach = Callable[..., ScriptedHost]


@pytest.fixture
def attach() -> Iterator[Attach]:
    """Attaches hosts that share datagram sockets."""
    with contextlib.ExitStack() as stack:

        def one(worker: Worker, features: int = FEATURES | SHARE | SHARE_DATAGRAM) -> ScriptedHost:
            return stack.enter_context(worker.attach(new_epoch(), features=features)).open()

        yield one


def named(host: ScriptedHost, keep_ms: int = KEEP_MS, **fields: Endpoint) -> tuple[int, Udp]:
    """A socket under a new key: the credits of its host are void."""
    key, udp = new_key(), Udp.open(host, **{"local": ANYWHERE} | fields)
    assert share(host, key, udp.id, udp.number, keep_ms).error == 0
    udp.granted = 0
    return key, udp


def member(host: ScriptedHost, key: int, peer: Endpoint = NOBODY) -> Udp:
    """Joins; the credits to send with come in a message of their own."""
    answer = share(host, key)
    assert answer.error == 0, errno.errorcode[answer.error]
    udp = Udp(host, answer.id, answer.fields["proxy_id"], 0, 0, answer.fields["local"], peer)
    udp.take()
    assert udp.held
    return udp


def credit(udp: Udp, bytes: int = WINDOW) -> None:
    udp.owing = bytes
    udp.give()


def quiet(udp: Udp) -> None:
    with pytest.raises(TimeoutError):
        udp.take(QUIET_MS)


def address(udp: Udp) -> tuple[str, int]:
    return LOOPBACK, udp.local.port


def test_who_has_no_credits_takes_nothing(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    key, parent = named(attach(worker))
    children = [member(attach(worker), key), member(attach(other_worker), key)]
    assert {child.local for child in children} == {parent.local}
    for n in range(40):
        peer.sendto(b"%d" % n, address(parent))
    for udp in (parent, *children):
        quiet(udp)
    credit(children[1])
    got = []
    for _ in range(5):  # few at a time: it may be busy, and others wait
        got += [children[1].receive(credit=False).data for _ in range(8)]
        quiet(children[1])
        children[1].give()
    assert got == [b"%d" % n for n in range(40)]
    quiet(parent)
    assert worker.stats().datagram_sockets == 2 and other_worker.stats().datagram_sockets == 1


def test_each_datagram_goes_to_one_member(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    key, parent = named(attach(worker))
    members = [parent, member(attach(worker), key), member(attach(other_worker), key)]
    for udp in members:
        credit(udp)
    for n in range(200):
        peer.sendto(b"%d" % n, address(parent))
    got: list[bytes] = []
    while len(got) < 200:
        for udp in members:
            with contextlib.suppress(TimeoutError):
                udp.take(1)
            got += [each.data for each in udp.ready]
            udp.ready.clear()
            if udp.owing:
                udp.give()
    assert sorted(got, key=int) == [b"%d" % n for n in range(200)]


def test_all_send_from_the_same_port(worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket) -> None:
    key, parent = named(attach(worker))
    for udp in (parent, member(attach(worker), key), member(attach(other_worker), key)):
        udp.send(Datagram(b"hello", endpoint_of(peer)))
        assert peer.recvfrom(10) == (b"hello", address(parent))


def test_the_peer_is_common(worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket) -> None:
    key, parent = named(attach(worker))
    child = member(attach(other_worker), key)
    assert parent.connect(endpoint_of(peer)).error == 0
    child.send(Datagram(b"to the peer"))
    assert peer.recv(100) == b"to the peer"
    late = member(attach(worker), key, endpoint_of(peer))
    late.send(Datagram(b"again"))
    assert peer.recv(100) == b"again"


def test_it_lives_until_the_last_member_closes_it(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    key, parent = named(attach(worker))
    child = member(attach(other_worker), key)
    parent.close()
    credit(child)
    peer.sendto(b"still here", address(child))
    assert child.receive().data == b"still here"
    child.close()
    peer.connect(address(parent))
    with pytest.raises(ConnectionRefusedError):
        peer.send(b"")
        peer.recv(1)
    assert share(attach(worker), key).error == errno.ENOENT
    assert worker.stats().datagram_sockets == other_worker.stats().datagram_sockets == 0


def test_it_is_kept_for_those_who_have_not_joined(worker: Worker, attach: Attach, peer: socket.socket) -> None:
    """The parent of a daemon exits at once; what comes meanwhile waits in the device's kernel."""
    host = attach(worker)
    key, parent = named(host)
    goodbye(host)
    worker.wait(lambda s: s.kept_listeners == 1, "it is not kept")
    peer.sendto(b"early", address(parent))
    child = member(attach(worker), key)
    credit(child)
    assert child.receive().data == b"early"
    assert worker.stats().kept_listeners == 0


def test_close_with_linger_keeps_it(worker: Worker, attach: Attach, peer: socket.socket) -> None:
    key, parent = named(attach(worker))
    parent.close("LINGER")
    assert worker.stats().kept_listeners == 1
    credit(child := member(attach(worker), key))
    peer.sendto(b"x", address(child))
    assert child.receive().data == b"x"


def test_it_is_not_kept_where_nobody_can_join(worker: Worker, attach: Attach) -> None:
    host = attach(worker)
    key, parent = named(host)
    assert share(host, key, parent.id, parent.number, keep_ms=0).error == 0
    goodbye(host)
    worker.wait(lambda s: s.datagram_sockets == 0 and s.kept_listeners == 0, "it has not ended")


def test_what_is_only_kept_gives_way_to_a_new_bind(worker: Worker, attach: Attach) -> None:
    host = attach(worker)
    _, parent = named(host)
    goodbye(host)
    worker.wait(lambda s: s.kept_listeners == 1, "it is not kept")
    again = Udp.open(attach(worker), local=parent.local)
    assert again.local == parent.local and worker.stats().kept_listeners == 0


def test_groups_are_those_of_the_socket(worker: Worker, other_worker: Worker, attach: Attach) -> None:
    """Who joined a group may leave; the others still have it, and may leave it for all."""
    key, parent = named(attach(worker), local=Endpoint.of("0.0.0.0", 0))
    child = member(attach(other_worker), key)
    request = socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK)
    assert parent.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request) == 0
    assert child.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request) == errno.EADDRINUSE
    assert worker.used("groups") == 1
    parent.close()
    assert worker.used("groups") == 1
    assert child.set(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, request) == 0
    assert worker.used("groups") == 0
    assert child.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request) == 0
    child.close()
    assert worker.used("groups") == 0


def test_errors_are_for_those_who_use_it(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    nobody = endpoint_of(peer)
    peer.close()
    key, parent = named(attach(worker), peer=nobody)
    child = member(attach(other_worker), key, nobody)
    child.send(Datagram(b"x"))
    assert child.error() == errno.ECONNREFUSED
    quiet(parent)


def test_what_has_been_taken_from_a_member_is_lost_with_it(worker: Worker, attach: Attach, peer: socket.socket) -> None:
    host = attach(worker)
    key, parent = named(host)
    child = member(attach(worker), key)
    credit(parent)
    peer.sendto(b"lost", address(parent))
    assert parent.receive(credit=False).data == b"lost"
    goodbye(host)
    credit(child)
    peer.sendto(b"next", address(parent))
    assert child.receive().data == b"next"


def test_a_host_without_the_feature(worker: Worker, attach: Attach) -> None:
    old = attach(worker, FEATURES | SHARE)
    udp = Udp.open(old, local=ANYWHERE)
    assert share(old, new_key(), udp.id, udp.number).error == errno.EINVAL
    key, _ = named(attach(worker))
    assert share(old, key).error == errno.ENOENT


def test_keys(worker: Worker, attach: Attach) -> None:
    host = attach(worker)
    key, first = named(host)
    second = Udp.open(host, local=ANYWHERE)
    assert share(host, key, second.id, second.number).error == errno.EEXIST
    assert share(host, 0, second.id, second.number).error == errno.EINVAL
    assert share(host, new_key(), first.id, first.number).error == errno.EINVAL


def test_options_are_common(worker: Worker, attach: Attach) -> None:
    """Options are the socket's: what one member sets the others have."""
    key, parent = named(attach(worker))
    child = member(attach(worker), key)
    assert child.set(socket.IPPROTO_IP, socket.IP_TTL, 33) == 0
    assert parent.option(socket.IPPROTO_IP, socket.IP_TTL) == (0, 33)
    assert child.set(socket.SOL_SOCKET, socket.SO_BROADCAST, struct.pack("i", 1)) == 0
    assert parent.option(socket.SOL_SOCKET, socket.SO_BROADCAST) == (0, 1)


# --- what is unread goes back -------------------------------------------------------------------------


def give_back(udp: Udp, *datagrams: Datagram, part: int = 30_000) -> None:
    """RETURN_DATAGRAMS, in parts of so many bytes."""
    raw = b"".join(datagram.encode(each) for each in datagrams)
    for at in range(0, len(raw), part):
        more = flags("MORE") if at + part < len(raw) else 0
        udp.host.send("XTS_CMD_RETURN_DATAGRAMS", raw[at : at + part], id=udp.id, flags=more)


def taken(udp: Udp, peer: socket.socket, *sent: bytes) -> list[Datagram]:
    """The member is sent all of these, reads none, and is named again."""
    credit(udp)
    for data in sent:
        peer.sendto(data, address(udp))
    return [udp.receive(credit=False) for _ in sent]


def void(udp: Udp, key: int) -> None:
    assert share(udp.host, key, udp.id, udp.number, KEEP_MS).error == 0
    udp.granted = 0


def test_what_is_unread_goes_to_who_reads_next(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    """Also where it has been waiting; before what has come since; with where it is from, and what is said of it."""
    key, parent = named(attach(worker))
    child = member(attach(other_worker), key)
    assert parent.set(socket.IPPROTO_IP, IP_PKTINFO, 1) == 0
    got = taken(parent, peer, b"one", b"", b"three")
    void(parent, key)
    peer.sendto(b"four", address(parent))
    give_back(parent, *got[:2], got[2])
    worker.wait(lambda _: worker.used("kept_bytes") > 0, "nothing is kept")
    credit(child)
    again = [child.receive() for _ in range(4)]
    assert [each.data for each in again] == [b"one", b"", b"three", b"four"]
    assert [each.endpoint for each in again] == [endpoint_of(peer)] * 4
    assert again[0].control("PKTINFO") == got[0].control("PKTINFO") is not None
    worker.wait(lambda _: worker.used("kept_bytes") == 0, "something is kept")
    quiet(parent)


def test_a_member_that_waits_is_sent_it(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    key, parent = named(attach(worker))
    got = taken(parent, peer, b"x", bytes(60_000))
    void(parent, key)
    child = member(attach(other_worker), key)
    credit(child)
    quiet(child)
    give_back(parent, *got, part=1_000)
    assert [child.receive().data for _ in got] == [b"x", bytes(60_000)]
    void(child, key)
    give_back(child, *got)
    credit(parent)
    assert parent.receive().data == b"x"


def error_returned(udp: Udp, error: int, *datagrams: Datagram) -> None:
    raw = b"".join(datagram.encode(each) for each in datagrams)
    udp.host.send("XTS_CMD_RETURN_DATAGRAMS", raw, id=udp.id, error=error)


def test_an_error_that_goes_back_is_for_who_reads_next(
    worker: Worker, other_worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    """Once, and not for a member that has shown no interest. Datagrams that came before it go first."""
    key, parent = named(attach(worker))
    child = member(attach(other_worker), key)
    (got,) = taken(parent, peer, b"one")
    void(parent, key)
    error_returned(parent, errno.ECONNREFUSED, got)
    quiet(parent)
    quiet(child)
    credit(child)
    told = [child.host.receive() for _ in range(2)]
    assert sorted((each.error, len(each.payload) > 0) for each in told) == [(0, True), (errno.ECONNREFUSED, False)]
    credit(parent)
    quiet(parent)


def test_an_error_that_goes_back_is_for_who_sends_next(worker: Worker, attach: Attach, peer: socket.socket) -> None:
    key, parent = named(attach(worker))
    void(parent, key)
    error_returned(parent, errno.ECONNREFUSED)
    quiet(parent)
    parent.send(Datagram(b"x", endpoint_of(peer)))
    assert peer.recv(10) == b"x"
    assert parent.host.receive().error == errno.ECONNREFUSED


def test_an_error_that_no_socket_has(worker: Worker, attach: Attach) -> None:
    _, parent = named(attach(worker))
    error_returned(parent, 4096)
    assert parent.host.wait_down() == errno.EPROTO


def test_no_more_goes_back_than_was_sent(worker: Worker, attach: Attach, peer: socket.socket) -> None:
    key, parent = named(attach(worker))
    (got,) = taken(parent, peer, b"once")
    void(parent, key)
    give_back(parent, got)
    give_back(parent, got)
    assert parent.host.wait_down() == errno.EPROTO


@pytest.mark.parametrize("wrong", ["cut off", "more", "an error", "garbage"])
def test_what_cannot_be_returned(wrong: str, worker: Worker, attach: Attach, peer: socket.socket) -> None:
    _, parent = named(attach(worker))
    (got,) = taken(parent, peer, bytes(1000))
    raw, more = datagram.encode(got), 0
    if wrong == "cut off":
        raw = raw[:-1]
    elif wrong == "more":
        more = flags("MORE")
    elif wrong == "an error":
        of_icmp = datagram.error_item(errno.ECONNREFUSED, (2, 3, 3), endpoint_of(peer))
        raw = datagram.encode(Datagram(controls=(of_icmp,)))
    else:
        raw = b"\xff" * 40
    parent.host.send("XTS_CMD_RETURN_DATAGRAMS", raw, id=parent.id, flags=more)
    assert parent.host.wait_down() == errno.EPROTO


def test_what_goes_back_ends_with_the_socket(worker: Worker, attach: Attach, peer: socket.socket) -> None:
    key, parent = named(attach(worker))
    got = taken(parent, peer, b"one", b"two")
    void(parent, key)
    give_back(parent, *got)
    worker.wait(lambda _: worker.used("kept_bytes") > 0, "nothing is kept")
    parent.close()
    worker.wait(lambda _: worker.used("kept_bytes") == 0, "something is kept")


def test_what_goes_back_of_a_socket_that_is_not_shared_is_dropped(
    worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    udp = Udp.open(attach(worker), local=ANYWHERE)
    got = taken(udp, peer, b"x")
    give_back(udp, *got)
    worker.wait(lambda s: s.datagrams_dropped == 1, "it is not counted")
    assert worker.used("kept_bytes") == 0


def test_a_datagram_that_comes_back_in_part_ends_with_its_channel(
    worker: Worker, attach: Attach, peer: socket.socket
) -> None:
    host = attach(worker)
    key, parent = named(host)
    (got,) = taken(parent, peer, bytes(10_000))
    raw = datagram.encode(got)
    host.send("XTS_CMD_RETURN_DATAGRAMS", raw[:5000], id=parent.id, flags=flags("MORE"))
    worker.wait(lambda _: worker.used("kept_bytes") > 0, "nothing is kept")
    goodbye(host)
    worker.wait(lambda s: worker.used("kept_bytes") == 0 and s.datagrams_dropped == 1, "something is kept")
    assert share(attach(worker), key).error in (0, errno.ENOENT)
