"""The declarations of `xts.h` with their comments, for manual pages and the site.

A comment says something about the declarations that follow it without an empty line, up to the first function; one with
lines of hyphens is the title of a section; one that an empty line follows is text of its section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .markdown import TOP

HEADER = TOP / "host_lib" / "native" / "xts.h"

_TITLE = re.compile(r"^-{2,}\s*(.*?)\s*-{2,}$")
_FUNCTION = re.compile(r"^[\w *]*?\b(\w+)\(.*\)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """Declarations that share a comment. `names`: of the functions among them."""

    declarations: str
    names: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Section:
    """`text`: paragraphs that are about all of it."""

    title: str
    text: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


def _comment(raw: str) -> str:
    """The text of a comment without its marks; paragraphs are kept."""
    inner = raw.strip().removeprefix("/*").removesuffix("*/")
    lines = [re.sub(r"^\s*\*? ?", "", line.strip()).rstrip() for line in inner.splitlines()]
    return "\n".join(lines).strip()


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """("comment", text), ("code", lines) and ("gap", "") in order, from the first declaration on."""
    for part in re.split(r"\n[ \t]*\n", source):
        rest = part.strip("\n")
        while rest:
            if rest.lstrip().startswith("/*"):
                end = rest.index("*/") + 2
                yield "comment", _comment(rest[:end])
                rest = rest[end:].lstrip("\n")
                continue
            found = re.search(r"^/\*", rest, re.MULTILINE)
            code = rest[: found.start()] if found else rest
            yield "code", code.rstrip("\n")
            rest = rest[found.start() :] if found else ""
        yield "gap", ""


def sections(source: str | None = None) -> list[Section]:
    """The sections of the header; the first has no title and the text of the comment at its top."""
    text = source if source is not None else HEADER.read_text()
    text = re.split(r"^#pragma GCC visibility pop", text, flags=re.MULTILINE)[0]
    found = [Section("")]
    said = ""
    for kind, piece in _pieces(text):
        if kind == "comment":
            if title := _TITLE.match(piece):
                found.append(Section(title[1]))
                said = ""
            else:
                if said:
                    found[-1].text.append(said)
                said = piece
        elif kind == "gap":
            if said:
                found[-1].text.append(said)
            said = ""
        elif code := _declarations(piece):
            found[-1].entries += _entries(code, said)
            said = ""
    return found


def _declarations(code: str) -> str:
    """Without what the preprocessor needs and readers do not."""
    kept = [
        line
        for line in code.splitlines()
        if not re.match(r'^#(ifndef|ifdef|endif|include|pragma|define XTS_H\b)|^extern "C"|^}$|^struct \w+;$', line)
    ]
    return "\n".join(kept).strip("\n")


def _statements(code: str) -> Iterator[str]:
    """Each declaration by itself, and each #define."""
    gathered: list[str] = []
    for line in code.splitlines():
        if line.startswith("#define"):
            yield line
            continue
        gathered.append(line)
        text = "\n".join(gathered)
        bare = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        if bare.rstrip().endswith(";") and bare.count("{") == bare.count("}"):
            yield text
            gathered = []
    if "".join(gathered).strip():
        yield "\n".join(gathered)


def _entries(code: str, said: str) -> Iterator[Entry]:
    """A comment is about what follows it, up to the first function; each other function is an entry without one."""
    gathered: list[str] = []
    for one in _statements(code):
        gathered.append(one)
        if name := function_name(one):
            yield Entry("\n".join(gathered), (name,), said)
            gathered, said = [], ""
    if gathered:
        yield Entry("\n".join(gathered), (), said)


def function_name(statement: str) -> str | None:
    """Of the function that it declares, or None."""
    if statement.startswith("#") or "{" in statement:
        return None
    found = _FUNCTION.match(" ".join(statement.rstrip().rstrip(";").split()))
    return found[1] if found else None
