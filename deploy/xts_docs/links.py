"""Checks the relative links of all Markdown files: `python -m xts_docs.links`. Each fault is a line FILE:LINE: TEXT."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from . import markdown

_LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
#: Pages that reference.py makes when the site is built: they have no file.
GENERATED = "deploy/docs/reference/"
PAGES = frozenset({"commands.md", "configuration.md", "environment.md", "python.md", "xts_h.md"})


def targets(line: str) -> Iterator[str]:
    """What the links of a line point to; code in backquotes has none."""
    for match in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
        yield match[1]
    yield from re.findall(r'<img [^>]*src="([^"]+)"', line)


def fault(path: Path, target: str, top: Path = markdown.TOP) -> str | None:
    """What is wrong with a link of this file, or None. Addresses of other sites are not looked at."""
    if re.match(r"^[a-z]+:", target):
        return None
    place, _, anchor = target.partition("#")
    there = (path.parent / unquote(place)).resolve() if place else path
    if not there.is_relative_to(top):
        return f"{target} leads out of the repository"
    if not there.exists():
        name = str(there.relative_to(top))
        return None if name.removeprefix(GENERATED) in PAGES else f"there is no {name}"
    if anchor and there.suffix == ".md" and anchor not in markdown.anchors(there):
        return f"{there.relative_to(top)} has no heading for #{anchor}"
    return None


def faults(paths: list[Path]) -> Iterator[str]:
    """Every link that leads nowhere."""
    for path in paths:
        for number, line in markdown.prose(path):
            for target in targets(line):
                if problem := fault(path, target):
                    yield f"{path.relative_to(markdown.TOP)}:{number}: {problem}"


def main() -> int:
    """Prints the faults; 1 when there are any."""
    found = list(faults(markdown.documents()))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
