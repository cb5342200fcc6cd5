"""Where the host's library asks which kind a socket is: the sites outside the kinds' own files, macros included."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from beds.c_layers import TOP

NATIVE = TOP / "host_lib" / "native"
#: The folders that are of a kind.
OWN = {"tables", "streams", "listeners", "datagrams"}
#: A read of what makes a socket this kind or that one, or of which table it has.
READS = (
    r"->datagrams\b(?!\s*=[^=])",
    r"\bTCP_STATE_LISTEN\b",
    r"\bKIND_(?:STREAM|LISTENER|DATAGRAM)\b",
    r"&(?:stream|listener|datagram)_kind\b",
    r"\b(?:kind_of|kind_of_type|kind_in_state|record_kind)\([^;]*?\)->(?:type|protocol|name)\s*[=!]=",
)
#: Definitions, which read nothing.
DEFINED = re.compile(r"^\s*TCP_STATE_LISTEN,|^enum \{ KIND_STREAM")


def _code(path: Path) -> str:
    """The text of a file without its comments; the lines keep their numbers."""
    return re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), path.read_text(), flags=re.S)


def _files() -> dict[str, str]:
    """Those that somebody has written."""
    texts = {str(path.relative_to(NATIVE)): _code(path) for path in sorted(NATIVE.rglob("*.[ch]"))}
    return {name: text for name, text in texts.items() if not (NATIVE / name).read_text().startswith("/* Generated ")}


def _macros(files: dict[str, str], reads: list[str]) -> set[str]:
    """The macros whose text reads the kind."""
    define = re.compile(r"^#define (\w+)((?:[^\n]*\\\n)*[^\n]*)$", re.M)
    found = [pair for text in files.values() for pair in define.findall(text)]
    return {name for name, body in found if re.search("|".join(reads), body)}


def asking() -> Counter[str]:
    """How many lines of each file outside the kinds' own ask it."""
    files = _files()
    reads = list(READS)
    while added := {rf"\b{name}\b" for name in _macros(files, reads)} - set(reads):
        reads.extend(added)
    site = re.compile("|".join(reads))
    return Counter(
        name
        for name, text in files.items()
        if Path(name).parts[0] not in OWN
        for line in text.splitlines()
        if site.search(line) and not DEFINED.search(line)
    )


if __name__ == "__main__":
    found = asking()
    for name, lines in sorted(found.items()):
        print(f"{lines:4} {name}")
    print(f"{found.total():4} in all")
