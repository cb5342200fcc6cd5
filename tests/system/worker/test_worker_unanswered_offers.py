"""A member of a shared listener that does not answer: the connections that it was offered go to others, as with the
kernel's listeners, where a stopped process takes none (PROTOCOL.md, "Shared listeners")."""

from __future__ import annotations

import errno
import time

from beds.scripted_host import Worker
from beds.share import Join, Listener, client, goodbye, join, joined, other_worker, port_of, shared, worker
from xts_messages.wire.codec import Frame, flags

__all__ = ["join", "other_worker", "worker"]  # fixtures

UNANSWERED_S = 1.0


def reset_of(member: Listener, number: int) -> Frame:
    frame = member.host.expect("XTS_REPLY_RECV")
    assert (frame.id, frame.flags, frame.error) == (number, flags("RESET"), errno.ECONNRESET)
    return frame


def test_another_member_gets_it_and_a_late_answer_is_reset(worker: Worker, other_worker: Worker, join: Join) -> None:
    for its_worker in (worker, other_worker):
        key, stopped = shared(join(worker), credits=5)
        with client(stopped.port) as peer:
            offer = stopped.offered()
            offered_at = time.monotonic()
            other = joined(join(its_worker), key, 5)
            again = other.offered()
            assert time.monotonic() - offered_at >= UNANSWERED_S * 0.9
            assert again.fields["peer"].port == port_of(peer)
            peer.sendall(b"whole")
            other.take(again)
            assert other.host.expect("XTS_REPLY_RECV").payload == b"whole"
            number = stopped.take(offer)
            stopped.host.send("XTS_CMD_SEND", b"from a process that slept", id=offer.fields["proxy_id"])
            reset_of(stopped, number)
            stopped.host.send("XTS_CMD_SEND", id=offer.fields["proxy_id"], flags=flags("CLOSE"))
            assert stopped.host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
            other.host.send("XTS_CMD_SEND", b"unharmed", id=again.fields["proxy_id"])
            assert peer.recv(100) == b"unharmed"
    assert worker.stats().given_back == 2
    assert worker.stats().bad_identifiers == 0


def test_who_does_not_answer_is_offered_nothing_until_it_does(worker: Worker, join: Join) -> None:
    key, stopped = shared(join(worker), credits=10)
    with client(stopped.port):
        offer = stopped.offered()
        other = joined(join(worker), key, 10)
        other.offered()  # which stays open, so that the stopped one would be next
        with client(stopped.port), client(stopped.port):
            other.offered()
            other.offered()
            stopped.quiet()
        stopped.take(offer)
        reset_of(stopped, stopped.host.new_socket() - 1)
        with client(stopped.port) as late:
            assert stopped.offered().fields["peer"].port == port_of(late)
        other.quiet()


def test_the_only_member_keeps_it_until_another_joins(worker: Worker, join: Join) -> None:
    key, only = shared(join(worker), credits=5)
    with client(only.port) as one, client(only.port) as two:
        first, second = only.offered(), only.offered()
        time.sleep(1.5 * UNANSWERED_S)  # that nothing happens cannot be waited for
        only.quiet()
        number = only.take(first)
        {port_of(one): one, port_of(two): two}[first.fields["peer"].port].sendall(b"patient")
        frame = only.host.expect("XTS_REPLY_RECV")
        assert (frame.id, frame.payload) == (number, b"patient")
        other = joined(join(worker), key, 5)
        assert other.offered().fields["peer"].port == second.fields["peer"].port


def test_given_back_late_it_is_gone_already(worker: Worker, join: Join) -> None:
    key, stopped = shared(join(worker), credits=5)
    with client(stopped.port) as peer:
        offer = stopped.offered()
        other = joined(join(worker), key, 1)
        other.take(other.offered())
        stopped.give_back(offer)
        with client(stopped.port) as late:
            stopped.quiet()  # its credits are void
            stopped.credit(1)
            assert stopped.offered().fields["peer"].port == port_of(late)
        peer.sendall(b"whole")
        assert other.host.expect("XTS_REPLY_RECV").payload == b"whole"


def test_a_member_that_answers_some_keeps_the_others(worker: Worker, join: Join) -> None:
    key, slow = shared(join(worker), credits=10)
    with client(slow.port), client(slow.port), client(slow.port):
        offers = [slow.offered() for _ in range(3)]
        other = joined(join(worker), key, 10)
        for offer in offers:
            time.sleep(0.6 * UNANSWERED_S)
            slow.take(offer)
        other.quiet()
    assert worker.stats().given_back == 0


def test_nothing_is_left_when_its_process_ends_or_closes_the_listener(worker: Worker, join: Join) -> None:
    key, ends = shared(join(worker), credits=5)
    other = joined(join(worker), key)
    closes = joined(join(worker), key)
    with client(ends.port), client(ends.port):
        ends.offered(), ends.offered()
        other.credit(2)
        for offer in (other.offered(), other.offered()):
            other.take(offer)
        goodbye(ends.host)
        worker.wait(lambda s: s.connections == 2 and s.shared_listeners == 2, "the connections are still there")
        closes.credit(5)
        with client(other.port):
            closes.offered()
            other.credit(1)
            other.take(other.offered())
            closes.close()
            worker.wait(lambda s: s.shared_listeners == 1, "the listener is still there")
    worker.wait(lambda s: s.connections == 3, "the connections are still there")
