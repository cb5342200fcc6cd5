"""Reads reports of coverage, for tests/coverage:

coverage_report.py gaps CORE         which lines and branches of the core no test reaches, other than those that cannot
                                     be reached; the exit status is 1 when there are any
coverage_report.py folders C PYTHON  lines and branches reached, folder by folder

CORE and C are JSON of gcovr, PYTHON is coverage.py's.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]

#: Branches that cannot be taken, by their text, and why.
CANNOT_HAPPEN = {
    # xts_link_receive() has looked at the length before, and these messages have no field with a limit.
    "if (!xts_hello_decode(&m.hello, frame, bytes))",
    "if (!xts_replaced_decode(&m.replaced, frame, bytes))",
    "if (!xts_goodbye_decode(&m.goodbye, frame, bytes))",
    "if (xts_clock_decode(&clock, frame, bytes))",
    "if (xts_clock_ack_decode(&ack, frame, bytes))",
    "if (xts_catch_up_decode(&m, frame, bytes) || !m.token || !(link->features & XTS_FEATURE_CATCH_UP))",
    "if (xts_caught_up_decode(&m, frame, bytes))",
    "if (xts_ping_decode(&ping, frame, bytes))",
    "if (xts_pong_decode(&pong, frame, bytes))",
    # These messages are longer than what Ethernet pads.
    "if (m->length < frame_bytes - XTS_CONNECT_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)",
    "if (m->length < frame_bytes - XTS_TOKEN_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)",
    "if (m->length < frame_bytes - XTS_RETURN_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)",
}


def gaps_of(file: dict[str, Any], text: list[str]) -> Iterator[str]:
    """The gaps of a file of the report. What follows a branch that cannot be taken, up to two lines on, is none."""
    excused: set[int] = set()
    for line in file["lines"]:
        number = int(line["line_number"])
        source = text[number - 1].strip()
        missed = sum(not branch["count"] for branch in line.get("branches", []))
        if missed and source in CANNOT_HAPPEN:
            excused |= {number + 1, number + 2}
            missed -= 1
        if missed or (not line["count"] and number not in excused):
            yield f"{file['file']}:{number}: {source}"


def gaps(core: str) -> int:
    """Prints the gaps; the exit status."""
    found = [
        gap
        for file in json.loads(Path(core).read_text())["files"]
        for gap in gaps_of(file, (TOP / file["file"]).read_text().splitlines())
    ]
    print("\n".join(["not reached by any test:", *found]) if found else "all that can be reached has been reached")
    return int(bool(found))


def folders(c: str, python: str) -> int:
    """Prints a table; the exit status."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def add(folder: str, *figures: int) -> None:
        for name in (folder, "all C" if "/" in folder else "all Python"):
            totals[name] = [a + b for a, b in zip(totals[name], figures, strict=True)]

    for file in json.loads(Path(c).read_text())["files"]:
        lines = file["lines"]
        branches = [branch for line in lines for branch in line.get("branches", [])]
        taken = sum(branch["count"] > 0 for branch in branches)
        add(str(Path(file["file"]).parent), sum(line["count"] > 0 for line in lines), len(lines), taken, len(branches))
    for name, found in json.loads(Path(python).read_text())["files"].items():
        s = found["summary"]
        package = next(part for part in Path(name).parts if part.startswith("xts_"))
        add(package, s["covered_lines"], s["num_statements"], s["covered_branches"], s["num_branches"])
    print(f"{'':36} {'lines':>7} {'reached':>8} {'branches':>9} {'reached':>8}")
    for folder in sorted(totals, key=lambda name: (" " in name, "/" not in name, name)):
        reached, count, taken, both = totals[folder]
        print(f"{folder:36} {count:7} {100 * reached / count:6.1f} % {both:9} {100 * taken / max(both, 1):6.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit({"gaps": gaps, "folders": folders}[sys.argv[1]](*sys.argv[2:]))
