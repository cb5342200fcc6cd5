"""Listeners that several hosts share: the worker's side of PROTOCOL.md's "Sockets that outlive a process or change
hands", against hosts made by hand."""

from __future__ import annotations

import contextlib
import errno
import random
import threading
import time
from collections.abc import Iterator

import pytest
from beds.scripted_host import Worker
from beds.share import (
    KEEP_MS,
    SHARE,
    Join,
    Listener,
    bind,
    client,
    goodbye,
    join,
    joined,
    listen,
    new_epoch,
    new_key,
    other_worker,
    port_of,
    refused,
    share,
    shared,
    worker,
)
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import flags

__all__ = ["join", "other_worker", "worker"]  # fixtures


RENEW_KEY = table.FEATURES["RENEW_KEY"][0]
WITHDRAW = table.FEATURES["WITHDRAW"][0]


@pytest.fixture
def join_and_renew() -> Iterator[Join]:
    """Attaches hosts that may give a listener another key."""
    with contextlib.ExitStack() as stack:
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=SHARE | RENEW_KEY)).open()


# --- a new key -----------------------------------------------------------------------------------------------


def test_a_member_gives_the_listener_another_key(worker: Worker, join_and_renew: Join) -> None:
    """The other members need not know it: they are members, and name no key (0) from then on."""
    key, first = shared(join_and_renew(worker), credits=1)
    second = joined(join_and_renew(worker), key, credits=1)
    renewed = new_key()
    assert share(second.host, renewed, second.proxy_id, second.number).error == 0
    assert share(join_and_renew(worker), key).error == errno.ENOENT
    assert share(first.host, 0, first.proxy_id, first.number).error == 0
    third = joined(join_and_renew(worker), renewed, credits=1)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(client(first.port))
        for member in (first, second, third):
            member.take(member.offered())
    assert share(join_and_renew(worker), 0).error == errno.ENOENT


def test_a_listeners_key_is_for_good_without_the_feature(worker: Worker, join: Join) -> None:
    key, first = shared(join(worker))
    for other in (new_key(), 0):
        assert share(first.host, other, first.proxy_id, first.number).error == errno.EINVAL
    joined(join(worker), key)


def test_a_key_of_another_listener_is_not_given(worker: Worker, join_and_renew: Join) -> None:
    key, _ = shared(join_and_renew(worker))
    other, second = shared(join_and_renew(worker))
    assert share(second.host, key, second.proxy_id, second.number, KEEP_MS).error == errno.EEXIST
    joined(join_and_renew(worker), other)


# --- withdrawing credits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", [WITHDRAW, 0])
def test_a_member_withdraws_its_credits(worker: Worker, join: Join, feature: int) -> None:
    """SHARE without a token does it, and one with a token does not. Later credits count again."""
    with worker.attach(new_epoch(), features=SHARE | feature) as attached:
        host = attached.open()
        key, first = shared(host, credits=8)
        second = joined(join(worker), key, credits=1)
        assert share(host, key, first.proxy_id, first.number).error == 0
        host.send("XTS_CMD_SHARE", id=first.proxy_id, xts_socket=first.number, token=0, key=key, keep_ms=KEEP_MS)
        assert host.expect("XTS_REPLY_SHARE_ACK").error == 0
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(client(first.port)) for _ in range(2)]
            second.take(second.offered())
            if feature:
                first.quiet()
                first.credit(1)
            first.take(first.offered())
            assert len(clients) == 2


# --- sharing -----------------------------------------------------------------------------------------------


def test_newcomers_go_to_members_in_turn(worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=8)
    members = [first, joined(join(worker), key, 8), joined(join(worker), key, 8)]
    worker.wait(lambda s: s.shared_listeners == 3 and s.listeners == 3, "not all have joined")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(first.port)) for _ in range(12)]
        offers = [[member.offered() for _ in range(4)] for member in members]
        seen = {offer.fields["peer"].port for row in offers for offer in row}
        assert seen == {port_of(c) for c in clients}
        for member in members:
            member.quiet()


def test_the_member_with_fewest_open_offers_is_next(worker: Worker, join: Join) -> None:
    key, busy = shared(join(worker), credits=100)
    idle = joined(join(worker), key)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(client(busy.port))
            busy.offered()
        idle.credit(100)
        for _ in range(4):
            stack.enter_context(client(busy.port))
            idle.take(idle.offered())
        busy.quiet()
        for _ in range(10):  # who accepts at once has none open, and gets them all
            stack.enter_context(client(busy.port))
            idle.take(idle.offered())
        busy.quiet()


def test_members_that_accept_at_once_take_turns(worker: Worker, join: Join) -> None:
    """A look that finds nothing to accept is nobody's turn: with two members, one would get all."""
    key, first = shared(join(worker), credits=10)
    second = joined(join(worker), key, 10)
    worker.wait(lambda s: s.shared_listeners == 2, "has not joined")
    with contextlib.ExitStack() as stack:
        for member in [first, second] * 5:
            stack.enter_context(client(first.port))
            member.take(member.offered())


def test_members_on_two_workers(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, here = shared(join(worker), credits=1)
    there = joined(join(other_worker), key, 1)
    with client(here.port) as one, client(here.port) as two:
        # Either worker may accept first, but each has credits for one.
        assert {here.offered().fields["peer"].port, there.offered().fields["peer"].port} == {port_of(one), port_of(two)}
        with client(here.port) as three:
            here.quiet()
            there.credit(1)
            assert there.offered().fields["peer"].port == port_of(three)


def test_data_flows_on_whichever_took_it(worker: Worker, join: Join) -> None:
    key, first = shared(join(worker))
    second = joined(join(worker), key, 1)
    with client(first.port) as peer:
        peer.sendall(b"early")
        offer = second.offered()
        second.quiet()  # nothing before it is accepted
        number = second.take(offer)
        frame = second.host.expect("XTS_REPLY_RECV")
        assert (frame.id, frame.payload) == (number, b"early")
        second.host.send("XTS_CMD_SEND", b"answer", id=offer.fields["proxy_id"])
        assert peer.recv(100) == b"answer"


def test_given_back_goes_to_another_and_voids_credits(worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=5)
    with client(first.port) as peer:
        offer = first.offered()
        second = joined(join(worker), key, 1)
        first.give_back(offer)
        again = second.offered()
        assert again.fields["peer"].port == port_of(peer)
        with client(first.port) as late:
            first.quiet()  # the other four credits are void
            first.credit(1)
            assert first.offered().fields["peer"].port == port_of(late)
        second.take(again)
        peer.sendall(b"whole")
        assert second.host.expect("XTS_REPLY_RECV").payload == b"whole"
    assert worker.stats().given_back == 1


def test_given_back_while_all_are_busy_waits(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=1)
    there = joined(join(other_worker), key)
    with client(first.port) as peer:
        peer.sendall(b"patient")
        first.give_back(first.offered())
        first.quiet()
        there.credit(1)  # on another worker
        offer = there.offered()
        assert offer.fields["peer"].port == port_of(peer)
        there.take(offer)
        assert there.host.expect("XTS_REPLY_RECV").payload == b"patient"
    assert there.host.expect("XTS_REPLY_RECV").flags == flags("EOS")
    with client(first.port) as peer:
        first.credit(1)
        first.give_back(first.offered())
        first.credit(1)
        assert first.offered().fields["peer"].port == port_of(peer)


def test_those_given_back_keep_their_order(worker: Worker, join: Join) -> None:
    """In whichever order their members give them back: who is offered them next gets them as they came."""
    key, first = shared(join(worker), credits=1)
    second, third = (joined(join(worker), key) for _ in range(2))
    idle = joined(join(worker), key)
    with contextlib.ExitStack() as stack:
        peers, offers = [], []
        for member in (first, second, third):
            if member is not first:
                member.credit(1)
            peers.append(stack.enter_context(client(first.port)))
            offers.append((member, member.offered()))
        for back, (member, offer) in enumerate((offers[1], offers[2], offers[0]), 1):
            member.give_back(offer)
            worker.wait(lambda s, back=back: s.given_back == back, "it has not come back")
        idle.credit(3)
        assert [idle.offered().fields["peer"].port for _ in peers] == [port_of(peer) for peer in peers]


def test_given_back_pokes_a_worker_that_has_credits(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=1)
    with client(first.port) as peer:
        offer = first.offered()
        there = joined(join(other_worker), key, 1)
        there.quiet()
        first.give_back(offer)
        assert there.offered().fields["peer"].port == port_of(peer)


def test_other_errors_refuse_by_reset(worker: Worker, join: Join) -> None:
    _key, first = shared(join(worker), credits=2)
    with client(first.port) as peer:
        first.host.send("XTS_CMD_NEWCONN_ACK", id=first.offered().fields["proxy_id"], error=errno.ECONNABORTED)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    with client(first.port):
        first.offered()  # the other credit is still there


def test_giving_back_to_a_listener_that_is_not_shared_resets(worker: Worker, join: Join) -> None:
    alone = listen(join(worker), credits=1)
    with client(alone.port) as peer:
        alone.give_back(alone.offered())
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


# --- ends of members ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "goodbye", "goodbye with an error", "violation"])
def test_open_offers_of_a_member_that_ends_go_to_others(
    worker: Worker, other_worker: Worker, join: Join, end: str
) -> None:
    key, first = shared(join(worker), credits=3)
    with contextlib.ExitStack() as stack:
        ports = {port_of(stack.enter_context(client(first.port))) for _ in range(3)}
        taken = first.offered()
        for _ in range(2):
            first.offered()
        second, third = joined(join(worker), key), joined(join(other_worker), key)
        first.take(taken)
        match end:
            case "close":
                first.close()
            case "goodbye":
                goodbye(first.host)
            case "goodbye with an error":
                goodbye(first.host, errno.EIO)
            case _:
                first.host.link.sent += 1
                first.credit(1)
        second.credit(1)
        third.credit(1)
        offers = {second.offered().fields["peer"].port, third.offered().fields["peer"].port}
        assert offers == ports - {taken.fields["peer"].port}


def test_the_last_close_closes_the_listener_at_once(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=2)
    second = joined(join(other_worker), key)
    with client(first.port) as offered, client(first.port) as waiting:
        offer = first.offered()
        first.give_back(first.offered())
        second.close()
        first.close()
        for peer in (offered, waiting):
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
        first.take(offer)  # too late, and harmless
    assert refused(first.port, 0.5)
    assert share(first.host, key).error == errno.ENOENT
    for one in (worker, other_worker):
        one.wait(lambda s: s.listeners == s.shared_listeners == s.kept_listeners == s.connections == 0, "left over")
    assert worker.stats().bad_identifiers == 1


@pytest.mark.parametrize("error", [0, errno.EIO])
def test_a_listener_is_kept_for_who_joins_later(worker: Worker, other_worker: Worker, join: Join, error: int) -> None:
    key, first = shared(join(worker), credits=1)
    with client(first.port) as offered:
        first.offered()
        goodbye(first.host, error)
        worker.wait(lambda s: s.kept_listeners == 1 and s.listeners == 0, "not kept")
        with client(first.port) as early:  # the kernel goes on accepting
            taker = joined(join(other_worker), key, 5)
            assert {taker.offered().fields["peer"].port for _ in range(2)} == {port_of(offered), port_of(early)}
            assert worker.stats().kept_listeners == 0
            with client(first.port) as late:
                assert taker.offered().fields["peer"].port == port_of(late)


def test_a_listener_that_was_passed_is_kept_when_it_is_closed(worker: Worker, join: Join) -> None:
    """What waits in it is for who joins it yet."""
    key, first = shared(join(worker), credits=1)
    waits = client(first.port)
    first.offered()
    first.host.send("XTS_CMD_SEND", id=first.proxy_id, flags=flags("CLOSE", "LINGER"))
    assert first.host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
    second = joined(join(worker), key, credits=2)
    second.take(second.offered())
    second.host.send("XTS_CMD_SEND", id=second.proxy_id, flags=flags("CLOSE"))
    waits.close()


def test_a_kept_listener_ends_when_its_time_is_over(worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=1)
    assert share(first.host, key, first.proxy_id, first.number, keep_ms=50).error == 0
    with client(first.port) as offered:
        first.offered()
        goodbye(first.host)
        worker.wait(lambda s: s.kept_listeners == 1, "not kept")
        with pytest.raises(ConnectionResetError):
            offered.recv(1)
    assert refused(first.port)
    worker.wait(lambda s: s.kept_listeners == 0, "kept for ever")
    assert share(join(worker), key).error == errno.ENOENT


def test_keeping_for_no_time_closes_at_once(worker: Worker, join: Join) -> None:
    _key, first = shared(join(worker), keep_ms=0)
    goodbye(first.host)
    worker.wait(lambda s: s.listeners == 0, "still there")
    assert refused(first.port, 0.5)
    assert worker.stats().kept_listeners == 0


def test_a_member_says_that_nobody_is_left_to_join(worker: Worker, other_worker: Worker, join: Join) -> None:
    """Nothing is kept then, whichever member's end the proxy sees last, and whatever that one said before."""
    key, first = shared(join(worker), keep_ms=60_000)
    second = joined(join(other_worker), key)
    assert share(second.host, key, second.proxy_id, second.number, keep_ms=0).error == 0
    goodbye(second.host)
    other_worker.wait(lambda s: s.listeners == 0, "still there")
    assert worker.stats().listeners == 1
    goodbye(first.host)
    worker.wait(lambda s: s.listeners == 0, "still there")
    assert refused(first.port, 0.5)
    assert worker.stats().kept_listeners == other_worker.stats().kept_listeners == 0


def test_a_kept_listener_gives_way_to_a_bind_of_its_address(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, first = shared(join(worker))
    stranger = join(other_worker)
    _, held = bind(stranger, first.port)
    assert held.error == errno.EADDRINUSE  # it has a member
    goodbye(first.host)
    worker.wait(lambda s: s.kept_listeners == 1, "not kept")
    listen(stranger, port=first.port)
    worker.wait(lambda s: s.kept_listeners == 0, "two listeners")
    assert share(stranger, key).error == errno.ENOENT


def test_a_kept_listener_does_not_give_way_to_who_may_not_listen(join: Join) -> None:
    with Worker() as worker, Worker(policy_default_allow=False, tenant=worker.tenant) as forbidding:
        key, first = shared(join(worker))
        goodbye(first.host)
        worker.wait(lambda s: s.kept_listeners == 1, "not kept")
        stranger = join(forbidding)
        assert bind(stranger, first.port)[1].error == errno.EACCES
        assert share(stranger, key).error == errno.EACCES
        assert joined(join(worker), key).port == first.port


# --- refusals and limits -----------------------------------------------------------------------------------


def test_wrong_uses_are_answered(worker: Worker, join: Join) -> None:
    host = join(worker)
    key, first = shared(host)
    number, bound = bind(host)
    single = listen(host)
    for expected, answer in (
        (errno.ENOENT, share(host, new_key())),
        (errno.EINVAL, share(host, 0, single.proxy_id, single.number)),
        (errno.ENOENT, share(host, 0)),
        (errno.EEXIST, share(host, key, single.proxy_id, single.number)),
        (errno.EINVAL, share(host, new_key(), first.proxy_id, first.number)),
        (errno.EINVAL, share(host, new_key(), bound.fields["proxy_id"], number)),
        (errno.EBADF, share(host, new_key(), 0x12345, single.number)),
        (errno.EBADF, share(host, new_key(), single.proxy_id, single.number + 1000)),
    ):
        assert answer.error == expected
    assert host.up and worker.stats().shared_listeners == 1


def test_sharing_is_refused_without_the_feature(worker: Worker) -> None:
    with worker.attach(1) as host:
        host.open()
        host.send("XTS_CMD_SHARE", xts_socket=1, token=1, key=1, keep_ms=1)
        assert host.wait_down() == errno.EPROTO


def test_the_limits_hold_for_joining_and_sharing(join: Join) -> None:
    with Worker(listeners=4, names=2) as worker:
        host = join(worker)
        (key, _), (_, _) = shared(host), shared(host)
        other = join(worker)
        joined(other, key)
        third = listen(other)
        answer = share(other, new_key(), third.proxy_id, third.number)
        assert answer.error == errno.ENOBUFS  # no more names
        assert share(host, key).error == errno.ENOBUFS  # no more listeners
        assert worker.stats().refused_limit == 2


def test_a_full_member_leaves_newcomers_to_others(join: Join) -> None:
    with Worker(connections=4) as worker:
        key, first = shared(join(worker), credits=10)
        second = joined(join(worker), key, 10)
        worker.wait(lambda _: worker.connection(1).send_credits == 10, "no credits for the second")
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(client(first.port))
            offers = [(m, m.offered()) for m in (first, second) for _ in range(2)]
            first.quiet()
            second.quiet()  # the fifth waits in the kernel
            member, offer = offers[-1]
            member.host.send("XTS_CMD_NEWCONN_ACK", id=offer.fields["proxy_id"], error=errno.ECONNABORTED)
            assert member.offered()


def test_giving_back_over_and_over_is_bounded(join: Join) -> None:
    with Worker(connections=2) as worker:
        host = join(worker)
        members = [shared(host, credits=2)[1] for _ in range(2)]
        peers = []
        for member in members:
            for _ in range(2):
                peers.append(client(member.port))
                member.credit(1)
            for offer in [member.offered(), member.offered()]:
                member.give_back(offer)
        for peer in peers[2:]:  # two may wait in the whole proxy; these are one too many each
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
        members[0].credit(2)
        assert {members[0].offered().fields["peer"].port for _ in range(2)} == {port_of(p) for p in peers[:2]}
        assert worker.stats().refused_limit == 2
        for peer in peers:
            peer.close()


def test_draining_ends_shared_and_kept_listeners(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, first = shared(join(worker), credits=2)
    there = joined(join(other_worker), key, 0)
    _, kept = shared(join(worker))
    goodbye(kept.host)
    worker.wait(lambda s: s.kept_listeners == 1, "not kept")
    with client(first.port) as peer, client(first.port) as back:
        offers = {o.fields["peer"].port: o for o in (first.offered(), first.offered())}
        worker.drain()
        assert refused(first.port, 0.5) and refused(kept.port, 0.5)
        first.give_back(offers[port_of(back)])
        with pytest.raises(ConnectionResetError):
            back.recv(1)
        number = first.take(offers[port_of(peer)])
        peer.sendall(b"still served")
        assert first.host.expect("XTS_REPLY_RECV").id == number
        assert share(first.host, key).error == errno.ESHUTDOWN
        assert share(there.host, key).error == errno.ENOENT
    there.close()
    other_worker.wait(lambda s: s.listeners == 0, "the other member remains")


def test_a_worker_that_stops_leaves_the_others_members(join: Join) -> None:
    with Worker() as staying:
        with Worker(tenant=staying.tenant) as stopping:
            key, first = shared(join(stopping), credits=1)
            there = joined(join(staying), key)
            _, kept = shared(join(stopping))
            goodbye(kept.host)
            stopping.wait(lambda s: s.kept_listeners == 1, "not kept")
            peer = client(first.port)
            first.offered()
        assert refused(kept.port, 0.5)
        there.credit(2)
        with peer, client(first.port) as late:
            assert {there.offered().fields["peer"].port for _ in range(2)} == {port_of(peer), port_of(late)}


# --- all at once -------------------------------------------------------------------------------------------


def served(members: list[Listener], rng: random.Random) -> None:
    """One look at each member: takes an offer or gives it back, and echoes what comes."""
    for member in members:
        try:
            frame = member.host.receive(1)
        except TimeoutError:
            continue
        match frame.name:
            case "XTS_REPLY_NEWCONN" if rng.random() < 0.3:
                member.give_back(frame)
                member.credit(rng.randrange(1, 4))
            case "XTS_REPLY_NEWCONN":
                member.serving[member.take(frame)] = frame.fields["proxy_id"]
                member.credit(1)
            case _ if frame.payload:
                member.host.send("XTS_CMD_SEND", frame.payload, id=member.serving.pop(frame.id))


def test_every_client_is_served_once_whatever_members_do(worker: Worker, other_worker: Worker, join: Join) -> None:
    """Members on two workers take, give back, die and join, while clients come."""
    rng = random.Random(5)
    key, first = shared(join(worker), credits=3)
    members = [first, *(joined(join(where), key, 3) for where in (worker, other_worker, other_worker))]
    answers: list[bytes] = []

    def one_client(number: int) -> None:
        with client(first.port) as peer:
            peer.settimeout(20)
            peer.sendall(b"%d" % number)
            answers.append(peer.recv(100))

    clients = [threading.Thread(target=one_client, args=(n,)) for n in range(60)]
    started = 0
    deadline = time.monotonic() + 20
    while len(answers) < len(clients) and time.monotonic() < deadline:
        if started < len(clients) and rng.random() < 0.5:
            clients[started].start()
            started += 1
        if started % 15 == 14 and not members[0].serving:  # of what it has taken, the end is its peer's end
            goodbye(members.pop(0).host)
            members.append(joined(join(rng.choice((worker, other_worker))), key, 3))
        served(members, rng)
    for thread in clients:
        thread.join(20)
    assert sorted(answers, key=int) == [b"%d" % n for n in range(60)]
