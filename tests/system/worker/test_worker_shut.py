"""SHUT_LISTENER and LISTENING: whether a socket listens is one thing for all hosts that have it. The worker, against
hosts made by hand."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest
from beds.scripted_host import ScriptedHost, Worker
from beds.share import (
    SHARE,
    SHARE_BOUND,
    Join,
    Listener,
    bind,
    client,
    join,
    joined,
    listen,
    new_epoch,
    new_key,
    other_worker,
    refused,
    share,
    shared,
    worker,
)
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

__all__ = ["join", "other_worker", "worker"]  # fixtures

LISTENING = table.FEATURES["LISTENING"][0]
NOT_YET, LISTENS, SHUT = 0, 1, 2
BACKLOG = 64  # of listen()


@pytest.fixture
def follow() -> Iterator[Join]:
    """Attaches hosts that speak LISTENING."""
    with contextlib.ExitStack() as stack:
        features = SHARE | SHARE_BOUND | LISTENING
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=features)).open()


def told(member: Listener) -> tuple[int, int]:
    frame = member.host.expect("XTS_REPLY_LISTENING")
    assert frame.id == member.number
    return frame.fields["listens"], frame.fields["backlog"]


def follower(host: ScriptedHost, key: int, credits: int = 0, listens: int = LISTENS) -> Listener:
    """A member that has joined, and was told whether the socket listens."""
    member = joined(host, key)
    assert told(member)[0] == listens
    if credits:
        member.credit(credits)
    return member


def shut(member: Listener) -> codec.Frame:
    member.host.send("XTS_CMD_SHUT_LISTENER", id=member.proxy_id, xts_socket=member.number, token=9)
    answer = member.host.expect("XTS_REPLY_SHUT_LISTENER_ACK")
    assert (answer.id, answer.fields["token"]) == (member.number, 9)
    return answer


def listen_again(member: Listener, credits: int = 0) -> None:
    member.host.send(
        "XTS_CMD_LISTEN",
        id=member.proxy_id,
        xts_socket=member.number,
        token=3,
        post_credits=credits,
        domain=4,
        backlog=BACKLOG + 1,
    )
    assert member.host.expect("XTS_REPLY_LISTEN_ACK").error == 0


def is_reset(peer: socket.socket) -> None:
    with pytest.raises(ConnectionResetError):
        peer.recv(1)


def test_all_members_are_told(worker: Worker, other_worker: Worker, follow: Join) -> None:
    key, first = shared(follow(worker), credits=1)
    others = [follower(follow(worker), key, 1), follower(follow(other_worker), key, 1)]
    answer = shut(first)
    assert answer.error == 0 and answer.fields["local"].port == first.port
    assert [told(member)[0] for member in others] == [SHUT, SHUT]
    assert refused(first.port, 0.05)
    assert worker.stats().listeners == other_worker.stats().listeners == 0
    assert worker.stats().shared_listeners == 2
    for member in (first, *others):
        assert shut(member).error == errno.ENOTCONN
        member.close()
    other_worker.wait(lambda s: s.shared_listeners == 0, "a member is left")


def test_one_that_listens_again_does_for_all(worker: Worker, other_worker: Worker, follow: Join) -> None:
    key, first = shared(follow(worker))
    second, third = follower(follow(worker), key), follower(follow(other_worker), key)
    assert shut(first).error == 0
    assert [told(second)[0], told(third)[0]] == [SHUT, SHUT]
    listen_again(third)
    assert told(first) == told(second) == (LISTENS, BACKLOG + 1)
    for member in (first, second, third):
        member.credit(1)
        with client(first.port):
            member.take(member.offered())


def test_credits_that_cross_the_end_count_for_nothing(worker: Worker, follow: Join) -> None:
    key, first = shared(follow(worker))
    second = follower(follow(worker), key)
    assert shut(first).error == 0
    first.credit(5)
    second.credit(5)
    assert told(second)[0] == SHUT
    listen_again(first)
    assert told(second)[0] == LISTENS
    with client(first.port):
        first.quiet()
        second.quiet()
        second.credit(1)
        second.take(second.offered())


@pytest.mark.parametrize("answered", ["not", "given back", "accepted"])
def test_what_was_offered_is_reset(worker: Worker, other_worker: Worker, follow: Join, answered: str) -> None:
    """At once: the host may be busy. It may answer later."""
    key, first = shared(follow(worker))
    second = follower(follow(other_worker), key, 1)
    with client(first.port) as peer:
        offer = second.offered()
        assert shut(first).error == 0
        is_reset(peer)
        assert told(second)[0] == SHUT
        if answered == "given back":
            second.give_back(offer)
        elif answered == "accepted":
            number = second.take(offer)
            reset = second.host.expect("XTS_REPLY_RECV")
            assert (reset.id, reset.error) == (number, errno.ECONNRESET)
    second.credit(1)  # nobody offers it anything
    second.quiet()


def test_what_waits_is_reset(worker: Worker, follow: Join) -> None:
    """In the kernel's backlog, and given back to the proxy: more than one turn of the worker."""
    key, first = shared(follow(worker), credits=1)
    second = follower(follow(worker), key)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(client(first.port)) for _ in range(BACKLOG)]
        first.give_back(first.offered())
        worker.wait(lambda s: s.given_back == 1, "nothing was given back")
        assert shut(second).error == 0
        for peer in peers:
            is_reset(peer)
    listen_again(second, 1)
    with client(second.port):
        second.take(second.offered())


def test_a_listener_of_one_host(worker: Worker, follow: Join) -> None:
    alone = listen(follow(worker), credits=BACKLOG)
    with client(alone.port) as peer:
        offer = alone.offered()
        assert shut(alone).error == 0
        is_reset(peer)
        alone.take(offer)
        assert alone.host.expect("XTS_REPLY_RECV").error == errno.ECONNRESET
    assert refused(alone.port, 0.05) and worker.stats().listeners == 0
    listen_again(alone, 1)
    with client(alone.port):
        alone.take(alone.offered())


def test_what_does_not_listen_is_not_shut(worker: Worker, follow: Join) -> None:
    host = follow(worker)
    number, bound = bind(host)
    assert shut(Listener(host, number, bound.fields["proxy_id"], 0)).error == errno.EINVAL
    assert shut(Listener(host, host.new_socket(), 0, 0)).error == errno.EBADF


def test_who_joins_is_told(worker: Worker, follow: Join) -> None:
    host, key = follow(worker), new_key()
    number, bound = bind(host)
    first = Listener(host, number, bound.fields["proxy_id"], bound.fields["local"].port)
    assert share(host, key, first.proxy_id, number).error == 0
    second = follower(follow(worker), key, listens=NOT_YET)
    listen_again(first)
    assert told(second) == (LISTENS, BACKLOG + 1)
    follower(follow(worker), key, listens=LISTENS)
    assert shut(second).error == 0
    follower(follow(worker), key, listens=SHUT)


def test_an_older_host_is_not_left_waiting(worker: Worker, follow: Join, join: Join) -> None:
    """It could not be told: nobody shuts the listener down while it has it."""
    key, first = shared(follow(worker))
    old = joined(join(worker), key, credits=1)
    assert shut(first).error == errno.EOPNOTSUPP
    with client(first.port):
        old.take(old.offered())
        old.close()
    assert shut(first).error == 0


def test_without_the_feature_it_is_a_violation(worker: Worker, join: Join) -> None:
    member = listen(join(worker))
    member.host.send("XTS_CMD_SHUT_LISTENER", id=member.proxy_id, xts_socket=member.number, token=9)
    assert member.host.wait_down() == errno.EPROTO
