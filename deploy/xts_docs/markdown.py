"""The Markdown files of the checkout, as far as the checks need to understand them: lines, fenced blocks, headings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]

#: Folders that are not part of the sources.
_SKIPPED = {".git", ".venv", "build", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

_FENCE = re.compile(r"^(\s*)```([\w-]*)\s*$")
_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `line`: of its first line of text, from 1. `note`: the HTML comment right before it."""

    path: Path
    line: int
    language: str
    text: str
    note: str


def documents(top: Path = TOP) -> list[Path]:
    """Every Markdown file of the checkout."""
    found = []
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [Path(folder) / name for name in files if name.endswith(".md")]
    return sorted(found)


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a file. ValueError: one is not closed."""
    note = language = ""
    start = 0
    indent = ""
    text: list[str] = []
    pending = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if start:
            if fence and not fence[2]:
                yield Block(path, start, language, "".join(text), note)
                start, note = 0, ""
            else:
                text.append(line.removeprefix(indent) + "\n")
        elif fence:
            indent, language, start, text = fence[1], fence[2], number + 1, []
        elif pending or line.lstrip().startswith("<!--"):
            pending += line + "\n"
            if "-->" in line:
                note = "".join(_COMMENT.findall(pending)).strip()
                pending = ""
        elif line.strip():
            note = ""
    if start:
        raise ValueError(f"{path}:{start}: a fenced block that is not closed")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines that people read as text: no fenced blocks, no comments."""
    fenced = commented = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if _FENCE.match(line) and not commented:
            fenced = not fenced
        elif fenced:
            continue
        elif commented or line.lstrip().startswith("<!--"):
            commented = "-->" not in line
        else:
            yield number, line


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    """What a link may name in this file: its headings, and explicit anchors."""
    found: dict[str, int] = {}
    named = set()
    for _, line in prose(path):
        if heading := re.match(r"^#{1,6}\s+(.*?)\s*(?:\{#([\w-]+)\})?$", line):
            name = heading[2] or slug(heading[1])
            found[name] = found.get(name, -1) + 1
            named.add(f"{name}-{found[name]}" if found[name] else name)
        named |= set(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return named
