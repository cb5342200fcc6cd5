"""Plans for people, and as JSON."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from .look import View
from .model import Action, Plan, Step, Value
from .planning import NEEDS_INTERFACE, fingerprint

_VALUE_CHARACTERS = 60
_NARROWEST = 20


def value_text(value: Value) -> str:
    """A value on one line."""
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.split())
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"


def plan_lines(plan: Plan, view: View, columns: int | None = None) -> Iterator[str]:
    """All of a plan. Sentences have at most so many columns; commands, which are copied, stay whole."""

    def wrapped(begin: str, sentence: str) -> Iterator[str]:
        room = max((columns or sys.maxsize) - len(begin), _NARROWEST)
        for line in textwrap.wrap(sentence, room, break_long_words=False, break_on_hyphens=False):
            yield begin + line
            begin = " " * len(begin)

    for note in plan.notes:
        yield from wrapped("note: ", note)
    if not plan.steps:
        yield "Everything is as the file wants it: there is nothing to do."
        return
    for number, step in enumerate(plan.steps, 1):
        change = f"{view.shown(str(step.setting))}: {value_text(step.found)} -> {value_text(step.wanted)}"
        yield from wrapped(f"{number}. ", change)
        yield from wrapped("   what    ", view.shown(step.what))
        yield from wrapped("   why     ", step.why)
        yield from _actions("do", step.actions, view, _no_actions(step))
        yield from wrapped("   source  ", f"{step.source.title}; {step.source.section}; {step.source.url}")
        yield f"   check   {view.shown(step.check)}"
        if not step.by_hand:
            yield from _actions("undo", step.undo, view, "goes with its interface")
    by_hand = sum(step.by_hand for step in plan.steps)
    yield f"{len(plan.steps)} steps" + (f", {by_hand} of them by hand" if by_hand else "")
    yield f"plan {fingerprint(plan.steps)}"


def _no_actions(step: Step) -> str:
    """Why a step has none: nobody can change an interface, or what is to be written has no names yet."""
    if step.setting.kind in NEEDS_INTERFACE and step.found is None:
        return "not known before its interface is there"
    return "nothing can change this"


def _actions(title: str, actions: Iterable[Action], view: View, empty: str) -> Iterator[str]:
    lines = [line for action in actions for line in view.shown(str(action)).splitlines()]
    for line in lines or [empty]:
        yield f"   {title:7} {line}"
        title = ""


def differing_lines(steps: Iterable[Step], view: View) -> Iterator[str]:
    """What differs: a line each, and the command that shows it."""
    for step in steps:
        setting = view.shown(str(step.setting))
        yield f"{setting}: is {value_text(step.found)}, wanted {value_text(step.wanted)}  ({view.shown(step.check)})"


def as_json(steps: Iterable[Step], notes: Iterable[str] = ()) -> str:
    """Steps with everything about them, and the fingerprint that `apply --expect` takes."""
    steps = tuple(steps)
    shown: dict[str, Any] = {"plan": fingerprint(steps), "notes": list(notes), "steps": [_step(one) for one in steps]}
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _step(step: Step) -> dict[str, Any]:
    return {
        "kind": step.setting.kind,
        "place": step.setting.place,
        "found": step.found,
        "wanted": step.wanted,
        "what": step.what,
        "why": step.why,
        "by_hand": step.by_hand,
        "possible": not step.impossible,
        "do": [str(action) for action in step.actions],
        "undo": [str(action) for action in step.undo],
        "check": step.check,
        "source": {"title": step.source.title, "section": step.source.section, "url": step.source.url},
    }
