"""What `python -m bench.upgrades` makes of what it has measured."""

from __future__ import annotations

import datetime
import io
import os
import time

import pytest
from bench.footprint import Footprint, growth, of_tree
from bench.upgrades import Figures, Requests, Span, hand_over, show
from rich.console import Console

REQUESTS = Requests([(1000, 3_000, 5), (1200, 900_000, 1), (2500, 7_000, 4)])


@pytest.mark.parametrize(
    ("span", "slowest_s"),
    [
        pytest.param(Span(0.9, 1.1), 0.003, id="began"),
        pytest.param(Span(1.5, 1.6), 0.9, id="outstanding"),
        pytest.param(Span(2.2, 2.4), 0, id="none"),
        pytest.param(Span(2.4, 2.6), 0.007, id="the_later_one"),
    ],
)
def test_the_slowest_that_began_or_was_outstanding(span: Span, slowest_s: float) -> None:
    assert REQUESTS.slowest_s(span) == pytest.approx(slowest_s)
    assert REQUESTS.count == 10


def line(at_s: float, text: str) -> str:
    when = datetime.datetime.fromtimestamp(at_s)
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03} xts-proxy INFO upgrade: {text}\n"


def test_a_hand_over_is_what_the_running_proxy_says_of_it() -> None:
    now_s = time.time()
    log = line(now_s - 3, "process 5 takes over") + line(now_s - 2, "the new proxy is xts-proxy 1, sha256 0, process 5")
    with pytest.raises(RuntimeError, match="not handed over"):
        hand_over(log)
    span = hand_over(log + line(now_s - 1.75, "1 channels with 3 sockets are the new proxy's"))
    assert span.length_s == pytest.approx(0.25, abs=0.002)
    assert span.begin_s == pytest.approx(time.monotonic() - 2, abs=0.5)


def test_the_goal_is_50_ms_or_twice_what_is_usual() -> None:
    figures = Figures(rate=1000, slowest=[49, 51, 300, 401], without=[1, 1, 200, 200])
    figures.whole_slowest = figures.hand_over = figures.whole = [1.0]
    assert figures.met() == 2
    out = io.StringIO()
    show({"shm": figures}, Console(file=out, width=200))
    assert "2 of 4" in out.getvalue() and "176 (49–401)" in out.getvalue()


def test_what_processes_have_and_how_it_grows() -> None:
    before = of_tree(os.getpid())
    ends = os.pipe()
    after = of_tree(os.getpid())
    for fd in ends:
        os.close(fd)
    assert after.descriptors == before.descriptors + 2 and after.processes >= 1 and after.memory_kib
    grown = growth([Footprint(1, 1, number) for number in range(100)])
    assert "first 10: 1 processes, 1 threads, 5 descriptors" in grown and "last 10" in grown and "95 desc" in grown
    assert growth([before] * 9) == ""
