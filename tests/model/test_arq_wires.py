"""Links over a bad wire, driven by hypothesis: with lost frames repeated (native/decorators/arq.h) everything that was
sent arrives, once and in order, whatever the wire does; nothing is counted as a violation, and when all is said the
queues are silent."""

from __future__ import annotations

from typing import Any

import pytest
from beds.examples import examples
from beds.lossy_wire import Conditions, RepeatedLinks
from hypothesis import given
from hypothesis import strategies as st

SLOTS = 128 + 32

shares = st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.3])
conditions = st.builds(
    Conditions,
    delay_us=st.sampled_from([0, 5, 50, 5000]),
    jitter_us=st.sampled_from([0, 20, 500, 20_000]),
    loss=shares,
    duplicate=shares,
    corrupt=shares,
    burst=st.sampled_from([1, 5, 60]),
    frames_per_s=st.sampled_from([0, 0, 300, 100_000]),
    room=st.sampled_from([3, 100]),
)


class Traffic:
    """Both ends send so many messages each, as credits allow, some of them answered by nothing."""

    def __init__(self, links: RepeatedLinks, there: int, back: int) -> None:
        self.links, self.wanted = links, (there, back)
        self.number = [0, 0]
        links.work = self.work

    def work(self, end: Any) -> None:
        while self.number[end.role] < self.wanted[end.role] and end.send(self.number[end.role] + 1):
            self.number[end.role] += 1
        assert end.queue.stats.window_frames <= 128

    @property
    def done(self) -> bool:
        return tuple(len(end.delivered) for end in self.links.ends) == self.wanted[::-1]


def check(links: RepeatedLinks) -> None:
    for end, other in (links.ends, links.ends[::-1]):
        assert end.up, end.link.error
        assert end.delivered == other.sent
        assert end.queue.stats.violations == 0


def fall_silent(links: RepeatedLinks) -> None:
    """Without pings nothing is repeated for ever."""
    for end in links.ends:
        end.link.watching = False
    links.run(lambda: all(end.queue.deadline_ns is None for end in links.ends), 3_600_000)


@examples(60)
@given(seed=st.integers(0, 2**32), there=conditions, back=conditions, window=st.sampled_from([4, 16, 128]))
def test_everything_arrives_once_and_in_order(seed: int, there: Conditions, back: Conditions, window: int) -> None:
    with RepeatedLinks(seed, there, back, window=window) as links:
        links.open(600_000)
        traffic = Traffic(links, 150, 60)
        links.run(lambda: traffic.done, 3_600_000)
        check(links)
        fall_silent(links)


@pytest.mark.parametrize("cut_ms", [30, 20_000])
def test_wire_that_comes_back(cut_ms: int) -> None:
    """While nothing gets through, little is sent; then everything goes on, at once after a short time, and within as
    long as it was away after a long one."""
    with RepeatedLinks(1, Conditions(delay_us=100)) as links:
        links.open()
        traffic = Traffic(links, 400, 400)
        links.run(lambda: len(links.proxy.delivered) > 100)
        for direction in links.directions:
            direction.cut = True
            direction.lost = 0
        end_ns = links.now_ns + cut_ms * 1_000_000
        while links.now_ns < end_ns:
            links.step(end_ns)
        for direction in links.directions:
            direction.cut = False
            assert direction.lost < SLOTS + 20 + cut_ms / 100
        links.run(lambda: traffic.done, cut_ms + 50)
        check(links)
