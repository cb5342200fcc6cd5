"""Checks shared by tables with several entries: unique names, and programs in object files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from xts_messages.settings.toml_positions import Path as KeyPath
from xts_messages.settings.toml_positions import dotted


class Program(Protocol):
    """An entry that names a program in an object file."""

    @property
    def object(self) -> str: ...
    @property
    def program(self) -> str: ...


def repeated(place: KeyPath, names: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the names of the entries at this place: each name is used once."""
    for i, name in enumerate(names):
        if name in names[:i]:
            yield (*place, i, "name"), f"{name} is used already, at {dotted((*place, names.index(name)))}"


def of_programs(
    place: KeyPath, entries: Sequence[Program], check: Callable[[Path, str], None]
) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the objects that the entries at this place name."""
    for i, one in enumerate(entries):
        try:
            check(Path(one.object), one.program)
        except OSError as error:
            where = "program" if "program" in str(error.strerror) else "object"
            text = str(error.strerror) if one.object in str(error.strerror) else f"{one.object}: {error.strerror}"
            yield (*place, i, where), text
