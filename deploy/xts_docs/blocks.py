"""The commands and programs in the documents, and what their comments say about running them.

Each fenced block of commands or of a program has an HTML comment right before it, which readers do not see:

    <!-- run -->                 the test runs it: by the shell, by Python
    <!-- run: COMMAND -->        the test gives it to this command's standard input
    <!-- file: NAME -->          the test writes it to this file, for a later block
    <!-- not run: REASON -->     the test cannot: why
    <!-- printed -->             not a command: what the block before it printed, where a line `…` stands for any lines

More lines of the comment add to that, each at most once: `before: COMMAND` and `after: COMMAND` are commands that a
test needs and a reader does not (waiting for a server, say); `prints: TEXT` is what the output has to contain.
Somewhere in the document `<!-- blocks: MARKER … -->` names the marks that pytest shall give to the test: root, long.
The blocks of a document run from its first to its last, in one shell, in a folder that looks like a checkout. Port 8000
becomes one that is free.

A block with `xts dev` or `xts run` has to prove that it offloads: each such command, or its programs, say so at their
end, as with -v, and nothing is left to the kernel. If that is not what a block shows, a comment in it that readers see
says "stays with the kernel".
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
_VERBS = ("run", "file", "not run", "printed")
#: A line of a printed block that stands for any lines, none among them.
ELLIPSIS = "…"
_MORE = ("before", "after", "prints")
_OFFLOADING = re.compile(r"\bxts (?:dev|run)\b")
_KEEPS = re.compile(r"#.*stays with the kernel")
#: What programs, and `xts dev` for those without the interposer, write at their end with XTS_VERBOSE=1.
_TOLD = re.compile(r"sockets: (\d+) offloaded \(.*?\); (\d+) not")
_TOLD_BY_PROXY = re.compile(r"through the proxy: (\d+) connections? made, (\d+) accepted, (\d+) datagrams? sent")


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

    @property
    def offloading(self) -> int:
        """How many commands in it offload the sockets of programs."""
        return len(_OFFLOADING.findall(self.block.text)) + len(_OFFLOADING.findall(self.argument))

    @property
    def keeps(self) -> bool:
        """Readers see that some of its sockets are left to the kernel."""
        return bool(_KEEPS.search(self.block.text))

    def unproven(self, printed: str) -> str:
        """What is wrong with the offload of its commands, by what they have printed at their end; empty: nothing."""
        proofs = [(int(offloaded), int(kept)) for offloaded, kept in _TOLD.findall(printed)]
        proofs += [(sum(map(int, counts)), 0) for counts in _TOLD_BY_PROXY.findall(printed)]
        offloaded, kept = sum(bool(proof[0]) for proof in proofs), sum(proof[1] for proof in proofs)
        if not self.offloading or self.keeps:
            return ""
        if kept:
            return f"{kept} sockets were left to the kernel, and the block does not say that one stays with the kernel"
        if offloaded < self.offloading:
            return f"{offloaded} of {self.offloading} commands with xts dev or xts run have offloaded a socket"
        return ""


def step(block: Block) -> Step:
    """What the block's comment says. NoteError: nothing, or nothing that is known."""
    where = f"{block.path.name}:{block.line}"
    lines = [line.strip() for line in block.note.splitlines() if line.strip()]
    if not lines:
        raise NoteError(f"{where}: a block of {block.language} that is neither run nor says why not")
    verb, _, argument = lines[0].partition(":")
    needs_argument = verb in ("file", "not run")
    if verb not in _VERBS or (needs_argument and not argument.strip()):
        raise NoteError(f"{where}: {lines[0]!r} is none of run, run: COMMAND, file: NAME, not run: REASON, printed")
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
        if block.language in RUNNABLE or block.note.startswith(("run", "file:", "printed")):
            found.append(step(block))
            if found[-1].verb == "printed" and (len(found) < 2 or found[-2].verb != "run"):
                raise NoteError(f"{path.name}:{block.line}: what did this print? No block that is run is before it")
    return found


def was_printed(shown: str, printed: str) -> bool:
    """Whether the output is what a document shows. Blanks at the ends of lines do not count."""
    wanted = [line.rstrip() for line in shown.strip("\n").splitlines()]
    pattern = "".join("(?:.*\n)*?" if line == ELLIPSIS else re.escape(f"{line}\n") for line in wanted)
    found = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, found) is not None


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
