"""The help of commands, as wide as the terminal: sentences are filled, and the comment of an example goes on below
itself."""

from __future__ import annotations

import argparse
import itertools
import re
import textwrap
from collections.abc import Iterator

#: Examples are indented by less; a line that is indented by more goes on with the comment above it.
_CONTINUED = 8
_NARROWEST = 20  # a comment with less room than this begins below its command
_EXAMPLE = re.compile(r"^(?P<command> *\S.*?)(?P<gap> {2,})(?P<comment>\S.*)$")


class Help(argparse.HelpFormatter):
    """Descriptions and epilogs keep their paragraphs and the lines of their examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line if line else "" for line in _lines(text.strip("\n"), width - len(indent)))


def _lines(text: str, width: int) -> Iterator[str]:
    for kind, lines in itertools.groupby(text.splitlines(), _kind):
        if kind == "sentences":
            yield from _wrapped(" ".join(lines), width)
        elif kind == "examples":
            for line in lines:
                yield from _example(line, width)
        else:
            yield ""


def _kind(line: str) -> str:
    return "examples" if line.startswith(" ") else "sentences" if line else "between"


def _example(line: str, width: int) -> Iterator[str]:
    parts = _EXAMPLE.match(line)
    indent = len(line) - len(line.lstrip())
    if len(line) <= width:
        yield line
    elif indent >= _CONTINUED:
        yield from _wrapped(line.strip(), width, indent)
    elif parts is None:
        yield line  # a command is copied: it stays whole
    elif width - (column := parts.start("comment")) >= _NARROWEST:
        first, *rest = _wrapped(parts["comment"], width, column)
        yield from (parts["command"] + parts["gap"] + first.lstrip(), *rest)
    else:
        yield parts["command"]
        yield from _wrapped(parts["comment"], width, _CONTINUED)


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    space = " " * indent
    filler = textwrap.TextWrapper(max(width, indent + _NARROWEST), initial_indent=space, subsequent_indent=space)
    filler.break_long_words = filler.break_on_hyphens = False  # words such as --pid and addresses are copied
    return filler.wrap(text)
