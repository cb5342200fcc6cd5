"""Keys of the configuration files, out of their declarations and of the commented example, for manual pages and site.

What a key means is in `deploy/xts-proxy.toml`, in the comment above it; what it may be is in its declaration
(`xts_proxy.config.config`). The agent's keys are its options.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from xts_agent import config as agent_config
from xts_proxy.config.config import Config

from .markdown import TOP

EXAMPLE = TOP / "deploy" / "xts-proxy.toml"

_KEY = re.compile(r"^(#?)\s*([a-z_]+) = (.*)$")
_TABLE = re.compile(r"^(#?)\s*(\[\[?[a-z_.]+\]\]?)$")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a table: its default, or an example where it has none; what it may be; what it means."""

    name: str
    value: str
    legal: str
    meaning: str


@dataclass(slots=True)
class Table:
    """`name` with its brackets: [limits], [[tenant]]."""

    name: str
    meaning: str
    keys: list[Key] = field(default_factory=list)


def _paragraphs(comment: list[str]) -> str:
    """A comment as Markdown: an item of a list begins with "- ", and its further lines are indented."""
    lines: list[str] = []
    for raw in comment:
        text, last = raw.strip(), lines[-1] if lines else ""
        item, goes_on = text.startswith("- "), raw.startswith("  ")
        if item or not text or not last or (last.startswith("- ") and not goes_on):
            lines += [""] if last and item != last.startswith("- ") else []
            lines.append(text)
        else:
            lines[-1] += f" {text}"
    return "\n".join(lines).strip()


def proxy_tables() -> list[Table]:
    """The tables of xts-proxy.toml, in its order; the first is the comment at its top."""
    found = [Table("", "")]
    comment: list[str] = []
    for line in EXAMPLE.read_text().splitlines():
        table, key = _TABLE.match(line.strip()), _KEY.match(line)
        if table:
            found.append(Table(table[2], _paragraphs(comment)))
            comment = []
        elif key and (not key[1] or line.startswith(("#   ", f"#{key[2]}"))):
            hints = _declared(found[-1].name)
            found[-1].keys.append(Key(key[2], key[3], legal(hints.get(key[2])), _paragraphs(comment)))
            comment = []
        elif line.startswith("#"):
            comment.append(line.lstrip("#").removeprefix(" ").rstrip())
        elif comment and len(found) == 1:
            found[0].meaning, comment = _paragraphs(comment), []
    return found


def _declared(table: str) -> dict[str, Any]:
    """Types of the keys of a table, by its name in brackets."""
    kind: Any = Config
    for part in table.strip("[]").split("."):
        kind = next((one for one in _structs(get_type_hints(kind, include_extras=True).get(part))), None)
        if kind is None:
            return {}
    return get_type_hints(kind, include_extras=True)


def _structs(hint: Any) -> Iterator[Any]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from _structs(part)


def legal(hint: Any) -> str:
    """What a value of this type may be, in words; "" when its meaning has to say that."""
    kind, parts = get_origin(hint), get_args(hint)
    text = {bool: "true or false", int: "a whole number", str: "a text"}.get(hint, "")
    if kind is Annotated:
        text = _of_notes(parts[0], parts[1:]) or legal(parts[0])
    elif kind is Literal:
        text = "one of " + ", ".join(json.dumps(value) for value in parts)
    elif kind in (Union, types.UnionType):
        text = next((found for part in parts if part is not type(None) and (found := legal(part))), "")
    elif kind is list:
        inner = legal(parts[0])
        text = f"a list of: {inner}" if inner else "a list"
    return text


def _of_notes(base: Any, notes: tuple[Any, ...]) -> str:
    for note in notes:
        if isinstance(note, msgspec.Meta) and (note.ge is not None or note.le is not None):
            return _range(base, note)
        if isinstance(note, msgspec.Meta) and note.description:
            return note.description
    return ""


def _range(base: Any, note: msgspec.Meta) -> str:
    what = "a number" if base is float else "a whole number"
    low = f" from {note.ge}" if note.ge is not None else ""
    return f"{what}{low}" + (f" to {note.le}" if note.le is not None else "")


def agent_keys() -> list[Key]:
    """The keys of xts-agent.toml: those of its options that are no mere switches of the command line."""
    hints = get_type_hints(agent_config.AgentConfig, include_extras=True)
    texts = {action.dest: action.help or "" for action in agent_config.parser()._actions}
    defaults = {one.name: one for one in msgspec.structs.fields(agent_config.AgentConfig)}
    found = []
    for name, hint in hints.items():
        default = defaults[name].default
        shown = "" if default is msgspec.NODEFAULT or default is None else _toml(name, default)
        found.append(Key(name, shown, legal(hint), texts.get(name, "")))
    return found


def _toml(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name == "endpoint_mode":
        return f"0o{value:o}"
    return f'"{value}"' if isinstance(value, str) else f"{value:#x}" if name == "ethertype" else str(value)
