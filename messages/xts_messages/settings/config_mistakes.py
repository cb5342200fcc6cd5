"""Mistakes in a configuration file, as agent and proxy tell them: place, key, what was expected and what was found."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

import msgspec
import msgspec.inspect
from msgspec import Struct

from xts_messages.settings.toml_positions import Position

_FOUND_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a file. It has no position if it is about the whole file, or about the command line."""

    file: str
    position: Position | None
    key: str
    problem: str

    @property
    def order(self) -> tuple[int, int]:
        return (self.position.line, self.position.column) if self.position else (1 << 30, 0)

    def __str__(self) -> str:
        where = f"{self.file}:{self.position.line}:{self.position.column}" if self.position else self.file
        return f"{where}: {self.key}: {self.problem}" if self.key else f"{where}: {self.problem}"


class ConfigError(ValueError):
    """A file that is not a valid configuration; `mistakes` has all mistakes found, in the order of the file."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.mistakes,), self.__dict__


def of_syntax(error: tomllib.TOMLDecodeError, text: str, file: str) -> Mistake:
    """What is wrong with a text that is not TOML."""
    match = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
    if not match:
        return Mistake(file, None, "", f"is not TOML: {error}")
    lines = text.splitlines() or [""]
    at_end = Position(len(lines), len(lines[-1]) + 1)
    position = Position(int(match[1]), int(match[2])) if match[1] else at_end
    return Mistake(file, position, "", f"is not TOML: {str(error)[: match.start()]}")


def near(name: str, known: Iterable[str]) -> str:
    """What else was meant by a name that is not known."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(names)}"


def found(value: Any) -> str:
    """A value as a file shows it, shortened."""
    match value:
        case bool() | int() | float() | str():
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= _FOUND_CHARACTERS else text[: _FOUND_CHARACTERS - 3] + "..."
        case dict():
            return "a table"
        case list() | tuple():
            return "an array"
        case _:
            return f"a date or time ({value})"


def needed(kind: Any) -> Any:
    """The type of a value that may be left out (TYPE | None)."""
    if not _is_union(kind):
        return kind
    kinds = [one for one in get_args(kind) if one is not type(None)]
    return kinds[0] if len(kinds) == 1 else kind


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (types.UnionType, Union)


def expectation(kind: Any) -> str:
    """What a value of this type looks like, for people."""
    kind = needed(kind)
    if hasattr(kind, "expected"):
        return str(kind.expected)
    if hasattr(kind, "__metadata__") and kind.__metadata__[0].description:
        return str(kind.__metadata__[0].description)
    if _is_union(kind):
        return ", or ".join(expectation(one) for one in get_args(kind) if one is not type(None))
    if get_origin(kind) in (list, tuple):
        return f"an array, each element {expectation(kind.__args__[0])}"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return "a table"
    match info := msgspec.inspect.type_info(kind):
        case msgspec.inspect.LiteralType():
            text = " or ".join(json.dumps(value) for value in info.values)
        case msgspec.inspect.IntType():
            text = f"an integer{_range(info.ge, info.le)}"
        case msgspec.inspect.FloatType():
            text = f"a number{_range(info.ge, info.le)}"
        case msgspec.inspect.BoolType():
            text = "true or false"
        case _:
            text = "a string"
    return text


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f" of at least {_number(low)}"
    return f" up to {_number(high)}" if low is None else f" from {_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
