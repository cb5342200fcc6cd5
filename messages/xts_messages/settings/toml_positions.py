"""The position of each key and value of a TOML document, which tomllib does not provide, and a good message needs.

Theory of operation: tomllib has accepted the text, so this module walks it without checking it: it only has to know
where tokens end. A key is found at the start of a statement or of an inline table's entry; its path is the table's
path, then its own dotted parts. Elements of arrays, and of arrays of tables, have their index as the last part of their
path. The tests compare the paths with those of tomllib's own result.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Line and column, both from 1; columns count characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key is, and its value. For a table both are its header, for an element of an array its value."""

    key: Position
    value: Position


def dotted(path: Path) -> str:
    """`limits.connections`, `policy.rule[2].ports`: a path in the usual notation."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def locate(text: str) -> dict[Path, Place]:
    """The place of every table, key and array element in `text`, which tomllib has accepted."""
    return _Walker(text).walk()


class _Walker:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.places: dict[Path, Place] = {}
        self.arrays: dict[Path, int] = {}  # arrays of tables: how many elements so far
        self.line_starts = [0] + [i + 1 for i, c in enumerate(self.text) if c == "\n"]

    def walk(self) -> dict[Path, Place]:
        table: Path = ()
        while self._skip(" \t\n"):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._entry(table)
        return self.places

    def _header(self) -> Path:
        begin = self._position()
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        parts = self._key()
        self.at += 2 if is_array else 1
        path: Path = ()
        for i, part in enumerate(parts):
            path = (*path, part)
            if is_array and i == len(parts) - 1:
                self.places.setdefault(path, Place(begin, begin))
                self.arrays[path] = self.arrays.get(path, -1) + 1
            if path in self.arrays:  # a header under an array of tables means its last element
                path = (*path, self.arrays[path])
            self.places.setdefault(path, Place(begin, begin))
        return path

    def _entry(self, table: Path) -> None:
        """Reads key = value, of a table or inline table."""
        begin = self._position()
        parts = self._key()
        self.at += 1  # "="
        self._skip(" \t")
        value = self._position()
        path = table
        for part in parts:
            path = (*path, part)
            self.places.setdefault(path, Place(begin, value))
        self._value(path)

    def _key(self) -> list[str]:
        """Reads the parts of a dotted key; stops at the "=" or "]" after it."""
        parts = []
        while True:
            self._skip(" \t")
            begin = self.at
            if self.text[self.at] in "\"'":
                self._string()
                # tomllib knows the escapes; a quoted key is a string like any other.
                parts.append(str(tomllib.loads(f"v = {self.text[begin : self.at]}")["v"]))
            else:
                while self.text[self.at] not in " \t.=]":
                    self.at += 1
                parts.append(self.text[begin : self.at])
            self._skip(" \t")
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def _value(self, path: Path) -> None:
        first = self.text[self.at]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        elif first in "\"'":
            self._string()
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}#\n":
                self.at += 1

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(" \t\n")
            if self.text[self.at] == "]":
                self.at += 1
                return
            begin = self._position()
            self.places[(*path, index)] = Place(begin, begin)
            self._value((*path, index))
            index += 1
            self._skip(" \t\n")
            if self.text[self.at] == ",":
                self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(" \t\n")
            if self.text[self.at] == "}":
                self.at += 1
                return
            self._entry(path)
            self._skip(" \t\n")
            if self.text[self.at] == ",":
                self.at += 1

    def _string(self) -> None:
        """Reads a string of any of the four kinds."""
        quote = self.text[self.at]
        is_long = self.text.startswith(quote * 3, self.at)
        close = quote * 3 if is_long else quote
        self.at += len(close)
        while not self.text.startswith(close, self.at):
            self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
        self.at += len(close)
        while is_long and self.text.startswith(quote, self.at):  # up to two more quotes belong to the string
            self.at += 1

    def _skip(self, blanks: str) -> bool:
        """Skips blanks and comments; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif self.text[self.at] in blanks:
                self.at += 1
            else:
                return True
        return False

    def _position(self) -> Position:
        line = bisect_right(self.line_starts, self.at)
        return Position(line, self.at - self.line_starts[line - 1] + 1)
