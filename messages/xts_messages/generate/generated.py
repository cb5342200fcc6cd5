"""The command of a module that makes files of the checkout: writes them, or checks those that are committed."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]

#: The longest line of a document.
COLUMNS = 100


def wrapped(text: str) -> str:
    """A paragraph of Markdown in lines of a document; code in backquotes and links are not broken."""
    whole = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", lambda part: part[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(whole, COLUMNS, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def main(module: str, description: str | None, outputs: Mapping[str, Callable[[], str]], argv: list[str] | None) -> int:
    """Writes or checks what `python -m MODULE` generates; returns the exit status.

    outputs: path below the top of the checkout -> the function that returns its text.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when a file is out of date")
    parser.add_argument("--top", type=Path, default=TOP, help="the checkout to write into (default: this one)")
    options = parser.parse_args(argv)
    stale = []
    for name, make in outputs.items():
        path = options.top / name
        text = make()
        if path.exists() and path.read_text() == text:
            continue
        if options.check:
            stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    for name in stale:
        print(f"{name} is out of date; run python -m {module}", file=sys.stderr)
    return 1 if stale else 0
