"""Progress of long work: a bar on a terminal; elsewhere, as in a log, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY_S = 20.0
T = TypeVar("T")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Steps:
    """A context manager; what has gone through is logged while it is open."""

    def __init__(self, console: Console, now_s: Callable[[], float] = time.monotonic) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self._bars = Progress(
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._in_log = not console.is_terminal
        self._now_s = now_s

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def through(self, plan: Sequence[T], name: Callable[[T], str], ends_s: float | None = None) -> Iterator[T]:
        """Each item of the plan, with its name before it is done. `ends_s`: when it ends at the latest, however far."""
        task = self._bars.add_task("", total=len(plan))
        begin = self._now_s()
        reported = begin - LINE_EVERY_S
        for done, item in enumerate(plan):
            now = self._now_s()
            self._bars.update(task, description=name(item))
            if self._in_log and now - reported >= LINE_EVERY_S:
                reported = now
                left_s = (now - begin) / done * (len(plan) - done) if done else 0.0
                if ends_s is not None:
                    left_s = min(left_s, max(0.0, ends_s - now))
                left = f", about {_minutes(left_s)} left" if done else ""
                print(f"{done + 1} of {len(plan)}{left}: {name(item)}", file=sys.stderr, flush=True)
            yield item
            self._bars.advance(task)
