"""A small linter for the documents: `python -m xts_docs.prose [FILE …]`. Each fault is a line FILE:LINE: TEXT.

The rules are in `deploy/docs/prose.toml`: how long lines, rows of tables and sentences may be, and words that are not
plain English or are known to nobody but us. These are looked for in whole sentences, whatever lines they stand on. What
stands in backquotes, links' addresses and fenced blocks is not text.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import markdown

RULES = markdown.TOP / "deploy" / "docs" / "prose.toml"

#: Ends a sentence: a full stop, a colon or a semicolon before a space, and an abbreviation is none.
_STOP = re.compile(r"(?<![A-Z])(?<!e\.g)(?<!i\.e)(?<!vs)[.!?](?:[)\"”*]|\*\*)*(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Rules:
    """What prose.toml says. `words`: pattern -> what to write instead."""

    line_columns: int
    row_columns: int
    sentence_words: int
    words: dict[str, str]
    long_rows: list[str] = field(default_factory=list)

    @property
    def patterns(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(rf"(?<![\w-]){word}(?![\w-])", re.IGNORECASE), say) for word, say in self.words.items()]


def load(path: Path = RULES) -> Rules:
    """The rules of the repository."""
    return Rules(**tomllib.loads(path.read_text()))


def plain(line: str) -> str:
    """A line as it is read aloud: without code, addresses of links and marks."""
    line = re.sub(r"`[^`]*`", "x", line)
    line = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", line)
    return re.sub(r"<[^>]*>|\*\*", "", line)


def sentences(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The sentences of a text, each with the line where it begins. A paragraph, an item and a cell end one."""
    begun = 0
    words: list[str] = []

    def ended() -> Iterator[tuple[int, str]]:
        if words:
            yield begun, " ".join(words)
        words.clear()

    for number, line in lines:
        text = plain(line)
        if re.match(r"^\s*([-*+]|\d+\.)\s|^\s*$|^#|^\||^\s*>", line):
            yield from ended()
        parts = re.split(r"(?<!\\)\|", text) if line.startswith("|") else [text]
        for index, part in enumerate(parts):
            if index:
                yield from ended()
            rest = re.sub(r"^\s*([-*+]|\d+\.)\s|^#+\s", "", part)
            while rest.strip():
                begun = begun if words else number
                stop = _STOP.search(rest)
                words.extend((rest[: stop.end()] if stop else rest).split())
                rest = rest[stop.end() :] if stop else ""
                if stop:
                    yield from ended()
        if line.startswith(("#", "|")):
            yield from ended()
    yield from ended()


def faults_of(lines: list[tuple[int, str]], rules: Rules) -> Iterator[tuple[int, str]]:
    """Line number and fault, for the text of one document."""
    for number, line in lines:
        limit = rules.row_columns if line.startswith("|") else rules.line_columns
        if len(line) > limit and " " in line.strip("|-: "):
            yield number, f"{len(line)} columns; at most {limit}"
    for number, sentence in sentences(lines):
        for pattern, instead in rules.patterns:
            if match := pattern.search(sentence):
                yield number, f"“{match[0]}”: {instead}"
        count = sum(1 for word in sentence.split() if re.search(r"\w", word))
        if count > rules.sentence_words:
            yield number, f"a sentence of {count} words; at most {rules.sentence_words}: {sentence[:60]}…"


def faults(paths: list[Path], rules: Rules) -> Iterator[str]:
    """Every fault of these documents, in the order of their lines."""
    for path in paths:
        name = str(path.relative_to(markdown.TOP))
        here = replace(rules, row_columns=sys.maxsize) if name in rules.long_rows else rules
        for number, fault in sorted(faults_of(list(markdown.prose(path)), here)):
            yield f"{name}:{number}: {fault}"


def main(arguments: list[str] | None = None) -> int:
    """Prints the faults; 1 when there are any."""
    given = sys.argv[1:] if arguments is None else arguments
    paths = [Path(name).resolve() for name in given] or markdown.documents()
    found = list(faults(paths, load()))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
