"""The rules of `[[steer]]`, in force for as long as the proxy runs.

Each interface gets a program (xts_bpf/classes.py) when the proxy starts, before it drops its privileges. The kernel
takes the program away with the last process of the proxy that ends, so nothing is left behind by one that was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from xts_proxy.config.config_steer import Steer

if TYPE_CHECKING:
    from xts_bpf.classes import Classes


class Steering:
    """The rules of all interfaces. A context manager."""

    def __init__(self, rules: Sequence[Steer], cpus: Sequence[int]) -> None:
        """OSError as Classes."""
        self._undo = ExitStack()
        #: Each rule, with its CPU, where it is counted and its number there.
        self._rows: list[tuple[Steer, int, Classes, int]] = []
        if not rules:
            return
        from xts_bpf.classes import Classes, ClassRule, Kind  # this imports libbpf

        with self._undo as undo:
            for interface in dict.fromkeys(rule.interface for rule in rules):
                of_it = [rule for rule in rules if rule.interface == interface]
                wanted = [ClassRule(Kind[r.match[0].upper()], r.match[1], cpus[r.worker]) for r in of_it]
                opened = undo.enter_context(Classes(interface, wanted))
                self._rows += [(rule, cpus[rule.worker], opened, i) for i, rule in enumerate(of_it)]
            self._undo = undo.pop_all()

    def rows(self) -> list[dict[str, Any]]:
        """For status: each rule, and how many frames have arrived, by CPU."""
        rows = []
        for rule, cpu, classes, number in self._rows:
            kind, value = rule.match
            frames = {str(at): count for at, count in classes.frames(number).items()}
            rows.append(
                {
                    "interface": rule.interface,
                    "match": kind,
                    "value": value,
                    "worker": rule.worker,
                    "cpu": cpu,
                    "tenant": rule.tenant,
                    "frames": frames,
                    "present": classes.present,
                }
            )
        return rows

    def close(self) -> None:
        """May be called again."""
        self._rows = []
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
