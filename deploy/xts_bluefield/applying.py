"""Applying a plan, and undoing what a journal tells."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from .journal import Entry, Journal
from .look import View
from .machine import Machine, missing_tool
from .model import Action, ByHand, Run, SetQueues, Setting, Show, Step, Value, Write
from .planning import FOLLOWS, GONE_WITH_INTERFACE, KIND, NEEDS_INTERFACE, fingerprint, look, make, plan, resolved
from .wanted import Wanted

Result = TypeVar("Result")
#: How long a new function may take to be attached, and udev to name its interface.
SETTLE_S = 10.0
_POLL_S = 0.05


class RefusedError(OSError):
    """Nothing was done; the text says why."""


class StoppedError(OSError):
    """It ended in the middle; the text says where, why, and how to go on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` steps were taken; `by_hand`: what a person has to do before the rest."""

    done: int
    by_hand: tuple[str, ...] = ()


def perform(action: Action, machine: Machine) -> None:
    """One action, with names for its references."""
    match action:
        case Run(argv, text, if_empty):
            view = View(machine)
            for shown in if_empty:
                if view.json(*(view.resolved(word) for word in shown)):
                    return
            machine.run(tuple(_until_named(word, machine) for word in argv), _until_named(text, machine))
        case Write(path, text):
            machine.write(path, text)
        case SetQueues(interface, count):
            machine.set_queues(_until_named(interface, machine), count)
        case ByHand(sentence):
            raise AssertionError(sentence)


def _until_named(text: str, machine: Machine) -> str:
    """The interfaces of a function that was just made take a moment to come."""
    if "<" not in text:
        return text
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return View(machine).resolved(text)
        except OSError as error:
            if error.errno != errno.ENODEV or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _settled(setting: Setting, machine: Machine, right: Callable[[Value, View], bool]) -> Value:
    """The setting's value once it is right, or the last one when time is over."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        view = View(machine)
        value = KIND[setting.kind].read(setting, view)
        if right(value, view) or time.monotonic() > deadline:
            return value
        time.sleep(_POLL_S)


def refuse_impossible(steps: Iterable[Step], machine: Machine) -> None:
    """RefusedError, before anything is done: a step that nothing can do, or a tool that is not there."""
    for step in steps:
        if step.impossible:
            raise RefusedError(
                errno.EOPNOTSUPP,
                f"{step.setting} is {step.found!r}, and nothing here makes it {step.wanted!r}: {step.why}",
            )
        for action in step.actions:
            if isinstance(action, Run) and not machine.has_tool(action.argv[0]):
                raise missing_tool(action.argv[0])


def apply(wanted: Wanted, machine: Machine, journal: Journal, show: Show, expected: str = "") -> Outcome:
    """Makes the machine as wanted, as far as it goes without a person. `expected`: the fingerprint of a plan; another
    one is refused. RefusedError: nothing was done. StoppedError: something was; the journal has it."""
    steps = make(wanted, View(machine)).steps
    if expected and fingerprint(steps) != expected:
        raise RefusedError(
            errno.ESTALE,
            f"the machine, or the file, is not as it was for plan {expected}: the plan is {fingerprint(steps)} now. "
            "Look at a new plan",
        )
    refuse_impossible(steps, machine)
    changed: set[str] = set()
    done = 0
    for number, step in enumerate(steps, 1):
        if step.by_hand:
            return Outcome(done, _sentences(steps))
        try:
            if _take(step, machine, journal, changed):
                changed.add(step.setting.kind)
                done += 1
                show(f"{number} of {len(steps)}: {step.what}")
        except OSError as error:
            raise StoppedError(
                error.errno,
                f"step {number} of {len(steps)}, {step.setting}: {error.strerror}. The steps after it were not begun. "
                f"Run apply again to go on from here, or undo to go back ({journal.path})",
            ) from error
    if left := differences(wanted, machine):
        raise StoppedError(
            errno.EIO,
            f"all {len(steps)} steps are done, but {left[0].setting} is {left[0].found!r} now, not {left[0].wanted!r}: "
            f"one setting has changed another. See check; undo goes back ({journal.path})",
        )
    return Outcome(done)


def _sentences(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(action.sentence for step in steps for action in step.actions if isinstance(action, ByHand))
    )


def _take(step: Step, machine: Machine, journal: Journal, changed: set[str]) -> bool:
    """One step; False: it has the wanted value already."""
    setting, kind = step.setting, KIND[step.setting.kind]
    found = kind.read(setting, View(machine))
    if found is None and setting.kind in NEEDS_INTERFACE:
        found = _settled(setting, machine, lambda value, _: value is not None)
        if found is None:
            raise OSError(errno.ENODEV, "there is no such interface; see `ip link`, and whether the driver makes one")
    view = View(machine)
    ours = resolved(step.wanted, view)
    if found == ours:
        return False
    if step.found is not None and found != step.found and FOLLOWS.get(setting.kind) not in changed:
        raise OSError(errno.ESTALE, f"was {step.found!r} for the plan, and is {found!r}: somebody else has changed it")
    actions = kind.actions(setting, found, ours)
    if not actions:
        raise OSError(errno.EOPNOTSUPP, f"is {found!r}, and nothing here makes it {ours!r}: {step.why}")
    named = Setting(setting.kind, view.shown(setting.place))  # undo must know it when the function has gone
    journal.begin(named, found, ours)
    for action in actions:
        perform(action, machine)
    now = _settled(setting, machine, lambda value, seen: value == resolved(step.wanted, seen))
    ours = resolved(step.wanted, View(machine))
    if now != ours:
        raise OSError(errno.EIO, f"has not become {ours!r}; it is {now!r}")
    journal.begin(named, found, ours)
    journal.done(named)
    return True


def differences(wanted: Wanted, machine: Machine) -> tuple[Step, ...]:
    """What is not as wanted."""
    seen = look(wanted, View(machine))
    return plan(seen.found, seen.wanted)


# --- back ----------------------------------------------------------------------------------------------


def undo(machine: Machine, journal: Journal, show: Show, force: bool = False) -> Outcome:
    """Goes back in reverse order. RefusedError: a setting has a value that is neither ours nor the original one
    (`force` takes it back all the same)."""
    entries = list(reversed(journal.entries))
    if not force:
        for entry in entries:
            _refuse_foreign(entry, machine)
    by_hand: list[str] = []
    done = 0
    for number, entry in enumerate(entries, 1):
        try:
            if _back(entry, machine, journal):
                done += 1
                show(f"{number} of {len(entries)}: {entry.setting} is as it was")
                by_hand += _needs(entry)
        except OSError as error:
            raise StoppedError(
                error.errno,
                f"{entry.setting}: {error.strerror}. What was changed before it is not undone yet. Run undo again to "
                f"go on from here ({journal.path})",
            ) from error
        journal.remove(entry.setting)
    return Outcome(done, tuple(dict.fromkeys(by_hand)))


def _refuse_foreign(entry: Entry, machine: Machine) -> None:
    try:
        now = KIND[entry.kind].read(entry.setting, View(machine))
    except OSError as error:
        raise RefusedError(error.errno, f"{entry.setting}: {error.strerror}. Nothing was undone") from error
    gone = entry.kind in (*GONE_WITH_INTERFACE, "bridge port") and not _has_interface(entry, machine)
    if entry.state == "done" and now not in (entry.ours, entry.original) and not gone:
        raise RefusedError(
            errno.ESTALE,
            f"{entry.setting} is {now!r}; apply made it {entry.ours!r}, and it was {entry.original!r} before: somebody "
            "else has changed it. Nothing was undone; --force sets it back all the same",
        )


def _has_interface(entry: Entry, machine: Machine) -> bool:
    return View(machine).name(entry.place.partition(" over ")[0]) is not None


def _back(entry: Entry, machine: Machine, journal: Journal) -> bool:
    """One setting; False: it has its original value already, or went with its interface."""
    kind = KIND[entry.kind]
    now = kind.read(entry.setting, View(machine))
    if now == entry.original or (entry.kind in GONE_WITH_INTERFACE and not _has_interface(entry, machine)):
        return False
    journal.leaving(entry.setting)
    for action in kind.actions(entry.setting, now, entry.original):
        perform(action, machine)
    now = _settled(entry.setting, machine, lambda value, _: value == entry.original)
    if now != entry.original:
        raise OSError(errno.EIO, f"has not become {entry.original!r} again; it is {now!r}")
    return True


def _needs(entry: Entry) -> list[str]:
    """What makes an undone value the one in use."""
    if entry.kind == "firmware":
        return ["power cycle the server: until then the card goes on with the values that apply had set"]
    if entry.kind == "kernel parameters":
        return ["reboot this machine: until then the CPUs stay isolated"]
    return []
