"""A check of the words in sources: `python -m xts_docs.words [FILE …]`. Each fault is a line FILE:LINE: TEXT.

The words are in `deploy/docs/words.toml`. Everything in a file counts: comments, strings, and names, whose parts
between underscores are words. Two words with the end of a line between them are not found. Hosts of package registries
are looked for in the documents, too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from . import markdown

WORDS = markdown.TOP / "deploy" / "docs" / "words.toml"
#: Of documents only the hosts count: for their words prose.py has rules. Lists of words and data are neither.
SOURCES = (".", ":!*.jsonl", ":!*.png", ":!deploy/docs/*.toml", ":!tests/fuzz/corpora")


def load(table: str = "words", path: Path = WORDS) -> list[tuple[re.Pattern[str], str]]:
    """Each pattern of a table with what to write instead."""
    words: dict[str, str] = tomllib.loads(path.read_text())[table]
    return [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), say) for word, say in words.items()]


def faults(text: str, words: list[tuple[re.Pattern[str], str]]) -> Iterator[tuple[int, str]]:
    """The faults of a text, each with its line."""
    whole = text.replace("_", " ")
    if not re.search("|".join(pattern.pattern for pattern, _ in words), whole, re.IGNORECASE):
        return
    for number, plain in enumerate(whole.splitlines(), 1):
        for pattern, say in words:
            if found := pattern.search(plain):
                yield number, f"“{found[0]}”: {say}"


def listed(*patterns: str) -> Iterator[Path]:
    """The files of the repository that these patterns of git name."""
    found = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=markdown.TOP, stdout=subprocess.PIPE, check=True)
    for name in found.stdout.decode().split("\0"):
        path = markdown.TOP / name
        if name and path.is_file():
            yield path


def main(arguments: list[str]) -> int:
    words, hosts = load(), load("hosts")
    count = 0
    for path in map(Path, arguments) if arguments else listed(*SOURCES):
        shown = path.relative_to(markdown.TOP) if path.is_relative_to(markdown.TOP) else path
        for number, text in faults(path.read_text(), hosts if path.suffix == ".md" else words + hosts):
            print(f"{shown}:{number}: {text}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
