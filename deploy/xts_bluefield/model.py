"""What a plan is made of: settings, actions, steps, and where each step is documented."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .look import View
    from .wanted import Wanted

#: What JSON can hold; None: there is none.
Value = Any


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One thing that has a value. `place` says which of its kind."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind} {self.place}"


@dataclass(frozen=True, slots=True)
class Source:
    """The page that documents a step."""

    title: str
    section: str
    url: str


@dataclass(frozen=True, slots=True)
class Run:
    """A command with its standard input. `if_empty`: only when these print an empty JSON list."""

    argv: tuple[str, ...]
    text: str = ""
    if_empty: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        shown = shlex.join(self.argv)
        for old, new in (("'<", "<"), (">'", ">")):  # names that are not known yet need no quotes to be read
            shown = shown.replace(old, new)
        lines = [line for line in self.text.splitlines() if line]
        return f"{shown} <<END\n" + "\n".join([*lines, "END"]) if lines else shown


@dataclass(frozen=True, slots=True)
class Write:
    """A file with this text; None: no file. Files of the kernel (/sys, /proc) are written in place."""

    path: str
    text: str | None

    def __str__(self) -> str:
        if self.text is None:
            return f"rm {self.path}"
        lines = self.text.splitlines()
        return (
            f"echo {self.text.strip()} > {self.path}" if len(lines) < 2 else f"write {len(lines)} lines to {self.path}"
        )


@dataclass(frozen=True, slots=True)
class SetQueues:
    """ETHTOOL_SCHANNELS: so many queues of an interface."""

    interface: str
    count: int

    def __str__(self) -> str:
        return f"ethtool -L {self.interface} combined {self.count}  (by ioctl; rx and tx where there are no combined)"


@dataclass(frozen=True, slots=True)
class ByHand:
    """What only a person can do: apply stops here."""

    sentence: str

    def __str__(self) -> str:
        return f"by hand: {self.sentence}"


Action = Run | Write | SetQueues | ByHand


class Kind(Protocol):
    """All that there is to know about settings of one kind."""

    name: str
    source: Source

    def wanted(self, wanted: Wanted) -> Iterable[tuple[Setting, Value]]:
        """The settings that the file asks for, with their values."""
        ...

    def read(self, setting: Setting, view: View) -> Value:
        """The value now. OSError: it cannot be read, with a sentence."""
        ...

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        """From one value to another; of none, it cannot be changed. Pure."""
        ...

    def what(self, setting: Setting, new: Value) -> str: ...

    def why(self, setting: Setting) -> str: ...

    def check(self, setting: Setting) -> str:
        """The command that shows the value to a person."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One setting that is to change. `undo` goes from the wanted value back to the found one."""

    setting: Setting
    what: str
    why: str
    found: Value
    wanted: Value
    actions: tuple[Action, ...]
    undo: tuple[Action, ...]
    check: str
    source: Source

    @property
    def by_hand(self) -> bool:
        return any(isinstance(action, ByHand) for action in self.actions)

    @property
    def impossible(self) -> bool:
        """Nothing can give it the wanted value; a value that is None may still turn out to be the wanted one."""
        return not self.actions and self.found is not None


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def problems(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.impossible)


Found = Mapping[Setting, Value]
Show = Callable[[str], None]
