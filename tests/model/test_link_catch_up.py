"""The link's requests to catch up, and their answers: one at a time, whatever a peer sends."""

from __future__ import annotations

import errno

import pytest
from beds.link_pair import CONSUMED, HOST, PROXY, Pair, config, core, from_host, from_proxy, kind
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

FEATURE = table.FEATURES["CATCH_UP"][0]


def pair_of(host: int = FEATURE, proxy: int = FEATURE) -> Pair:
    return Pair(config(HOST, features=host), config(PROXY, features=proxy)).open()


def test_a_request_is_answered_when_the_proxy_says_so() -> None:
    pair = pair_of()
    assert core.xts_link_catch_up(pair.host.link) and core.xts_link_catching_up(pair.host.link)
    assert not core.xts_link_catch_up(pair.host.link), "one is open"
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_CATCH_UP"]
    assert pair.proxy.receive(pair.now_ns) == CONSUMED
    assert not pair.proxy.pump(pair.now_ns), "it has not been served"
    assert core.xts_link_catch_up_begins(pair.proxy.link) and not core.xts_link_catch_up_begins(pair.proxy.link)
    assert core.xts_link_catching_up(pair.proxy.link)
    core.xts_link_caught_up(pair.proxy.link)
    assert not core.xts_link_catching_up(pair.proxy.link), "the answer is due"
    assert [kind(f) for f in pair.proxy.pump(pair.now_ns)] == ["XTS_LINK_CAUGHT_UP"]
    assert not core.xts_link_catching_up(pair.proxy.link)
    pair.settle()
    assert not core.xts_link_catching_up(pair.host.link)
    assert core.xts_link_catch_up(pair.host.link), "and the next may follow"


@pytest.mark.parametrize(("host", "proxy"), [(0, FEATURE), (FEATURE, 0)])
def test_it_is_not_asked_where_one_end_does_not_know_it(host: int, proxy: int) -> None:
    pair = pair_of(host, proxy)
    assert not core.xts_link_catch_up(pair.host.link)
    assert not pair.host.pump(pair.now_ns)
    assert not core.xts_link_catch_up(pair.proxy.link), "a proxy does not ask"


def test_only_a_host_asks_and_only_while_the_link_is_up() -> None:
    pair = Pair(config(HOST, features=FEATURE), config(PROXY, features=FEATURE))
    assert not core.xts_link_catch_up(pair.host.link), "it is being opened"
    assert not core.xts_link_catching_up(pair.host.link)
    pair.open()
    assert not core.xts_link_catch_up(pair.proxy.link)
    assert core.xts_link_catch_up(pair.host.link)
    core.xts_link_goodbye(pair.host.link, 0)
    assert not core.xts_link_catching_up(pair.host.link)


def test_what_nobody_asked_is_not_answered() -> None:
    pair = pair_of()
    assert not core.xts_link_catch_up_begins(pair.proxy.link)
    core.xts_link_caught_up(pair.proxy.link)
    assert not pair.proxy.pump(pair.now_ns)
    assert pair.host.take(from_proxy("XTS_LINK_CAUGHT_UP", {"token": 0}), pair.now_ns) == CONSUMED
    assert core.xts_link_catch_up(pair.host.link)
    pair.host.pump(pair.now_ns)
    for token, is_open in ((2, True), (1, False)):
        assert pair.host.take(from_proxy("XTS_LINK_CAUGHT_UP", {"token": token}), pair.now_ns) == CONSUMED
        assert bool(core.xts_link_catching_up(pair.host.link)) == is_open


@pytest.mark.parametrize(("features", "token"), [(0, 1), (FEATURE, 0)])
def test_a_request_that_may_not_be_ends_the_link(features: int, token: int) -> None:
    pair = pair_of(FEATURE, features)
    pair.proxy.take(from_host("XTS_LINK_CATCH_UP", {"token": token}), pair.now_ns)
    assert pair.proxy.error == errno.EPROTO


def test_a_flood_of_requests_is_one_request() -> None:
    pair = pair_of()
    for token in range(1, 1000):
        pair.proxy.take(from_host("XTS_LINK_CATCH_UP", {"token": token}), pair.now_ns)
    assert core.xts_link_catch_up_begins(pair.proxy.link) and not core.xts_link_catch_up_begins(pair.proxy.link)
    core.xts_link_caught_up(pair.proxy.link)
    (answer,) = pair.proxy.pump(pair.now_ns)
    assert codec.decode(answer).fields["token"] == 999


def test_a_request_that_comes_before_the_answer_has_left_begins_again() -> None:
    pair = pair_of()
    pair.proxy.take(from_host("XTS_LINK_CATCH_UP", {"token": 1}), pair.now_ns)
    assert core.xts_link_catch_up_begins(pair.proxy.link)
    core.xts_link_caught_up(pair.proxy.link)
    pair.proxy.take(from_host("XTS_LINK_CATCH_UP", {"token": 2}), pair.now_ns)
    assert not pair.proxy.pump(pair.now_ns)
    assert core.xts_link_catch_up_begins(pair.proxy.link)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_answers_nobody_asked_for_count_for_nothing(tokens: list[int]) -> None:
    pair = pair_of()
    assert core.xts_link_catch_up(pair.host.link)
    pair.host.pump(pair.now_ns)
    open_token = int(pair.host.link.catch_up_token)
    for token in tokens:
        assert pair.host.take(from_proxy("XTS_LINK_CAUGHT_UP", {"token": token}), pair.now_ns) == CONSUMED
    assert pair.host.up and bool(core.xts_link_catching_up(pair.host.link)) == (open_token not in tokens)


def test_a_new_epoch_forgets_requests() -> None:
    pair = pair_of()
    core.xts_link_catch_up(pair.host.link)
    pair.settle()
    assert core.xts_link_catching_up(pair.proxy.link)
    pair.reattach(config(HOST, features=FEATURE, epoch=77))
    pair.open()
    assert not core.xts_link_catching_up(pair.proxy.link) and not core.xts_link_catching_up(pair.host.link)


@given(st.integers(4, 128), st.lists(st.tuples(st.integers(0, 130), st.integers(0, 130)), max_size=12))
def test_what_the_peer_may_send_is_known(window: int, steps: list[tuple[int, int]]) -> None:
    """In step with what it can send: when both have read everything, the same number."""
    pair = Pair(config(HOST, frame_window=window), config(PROXY, frame_window=window)).open()
    number = 0
    for send, recycle in steps:
        for _ in range(send):
            number += 1
            if not pair.proxy.send(number):
                break
        pair.settle()
        pair.host.recycle(recycle)
        pair.settle()
        assert core.xts_link_peer_credits(pair.host.link) == pair.proxy.credits
