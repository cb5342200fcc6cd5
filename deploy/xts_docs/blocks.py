"""The commands and programs in the documents, and what their comments say about running them.

Each fenced block of commands or of a program has an HTML comment right before it, which readers do not see:

    <!-- run -->                 the test runs it: by the shell, by Python
    <!-- run: COMMAND -->        the test gives it to this command's standard input
    <!-- file: NAME -->          the test writes it to this file, for a later block
    <!-- not run: REASON -->     the test cannot: why

More lines of the comment add to that, each at most once: `before: COMMAND` and `after: COMMAND` are commands that a
test needs and a reader does not (waiting for a server, say); `prints: TEXT` is what the output has to contain.
Somewhere in the document `<!-- blocks: MARKER … -->` names the marks that pytest shall give to the test: root, long.
The blocks of a document run from its first to its last, in one shell, in a folder that looks like a checkout. Port 8000
becomes one that is free.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import markdown
from .markdown import Block

#: Languages of blocks that a reader would type or run; anything else is only shown.
RUNNABLE = {"sh", "python", "c"}
#: Languages that a block may have in addition. `text` is output, or a sketch.
SHOWN = {"text", "toml", "ini", "rules", "lua", "http"}
MARKERS = {"root", "long", "afxdp"}
_VERBS = ("run", "file", "not run")
_MORE = ("before", "after", "prints")


class NoteError(ValueError):
    """A comment that does not say what to do with its block."""


@dataclass(frozen=True, slots=True)
class Step:
    """A block, and what a test does with it. `verb`: one of _VERBS; `argument`: what comes after its colon."""

    block: Block
    verb: str
    argument: str
    before: str = ""
    after: str = ""
    prints: str = ""


def step(block: Block) -> Step:
    """What the block's comment says. NoteError: nothing, or nothing that is known."""
    where = f"{block.path.name}:{block.line}"
    lines = [line.strip() for line in block.note.splitlines() if line.strip()]
    if not lines:
        raise NoteError(f"{where}: a block of {block.language} that is neither run nor says why not")
    verb, _, argument = lines[0].partition(":")
    if verb not in _VERBS or (verb != "run" and not argument.strip()):
        raise NoteError(f"{where}: {lines[0]!r} is none of run, run: COMMAND, file: NAME, not run: REASON")
    more: dict[str, str] = {}
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key not in _MORE or key in more:
            raise NoteError(f"{where}: {line!r} is none of {', '.join(_MORE)}, or there twice")
        more[key] = value.strip()
    return Step(block, verb, argument.strip(), **more)


def steps(path: Path) -> list[Step]:
    """The blocks of a document that are run or say why not. NoteError: one does neither."""
    found = []
    for block in markdown.blocks(path):
        if block.language not in RUNNABLE | SHOWN:
            raise NoteError(f"{path.name}:{block.line}: a block of {block.language or 'no language'}; use text")
        if block.language in RUNNABLE or block.note.startswith(("run", "file:")):
            found.append(step(block))
    return found


def markers(path: Path) -> set[str]:
    """The marks of pytest that the document asks for."""
    found = set(" ".join(re.findall(r"<!-- blocks: (.*?) -->", path.read_text())).split())
    if unknown := found - MARKERS:
        raise NoteError(f"{path.name}: {', '.join(sorted(unknown))} is none of {', '.join(sorted(MARKERS))}")
    return found


def executed(top: Path = markdown.TOP) -> Iterator[Path]:
    """The documents with a block that a test runs; without those that steps() refuses."""
    for path in markdown.documents(top):
        try:
            if any(one.verb != "not run" for one in steps(path)):
                yield path
        except NoteError:
            continue


def main() -> int:
    """Prints the documents' blocks that have no verdict, and those that are not run with their reasons."""
    status = 0
    for path in markdown.documents():
        try:
            for one in steps(path):
                if one.verb == "not run":
                    print(f"{path.relative_to(markdown.TOP)}:{one.block.line}: not run: {one.argument}")
        except NoteError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
