"""Regenerates every file made from the wire table: `python -m xts_messages.generate [--check]`.

With --check nothing is written; the exit status is 1 when a committed file differs from what the table says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from . import generate_c, generate_doc, generate_lua, generate_ulps, generate_vectors

TOP = Path(__file__).resolve().parents[2]

#: Path below the top of the checkout -> the function that makes its text.
OUTPUTS: dict[str, Callable[[], str]] = {
    "messages/native/wire.h": generate_c.header,
    "messages/native/ulp_wire.h": generate_ulps.header,
    "messages/ULPS.md": generate_ulps.document,
    "messages/MESSAGES.md": generate_doc.document,
    "deploy/wireshark/xts.lua": generate_lua.dissector,
    **generate_vectors.outputs(),
}


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the generated files; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m xts_messages.generate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when a file is out of date")
    parser.add_argument("--top", type=Path, default=TOP, help="the checkout to write into (default: this one)")
    options = parser.parse_args(argv)
    stale = []
    for name, make in OUTPUTS.items():
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
        print(f"{name} is not what the wire table says; run python -m xts_messages.generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
