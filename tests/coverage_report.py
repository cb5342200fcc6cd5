"""Which lines and branches of the core its tests have not reached, other than those that cannot be reached:
`coverage_gaps.py REPORT`, where REPORT is gcovr's JSON. The exit status is 1 when there are any."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]

#: Branches that cannot be taken, by their text, and why.
CANNOT_HAPPEN = {
    # xts_link_receive() has looked at the length before, and these messages have no field with a limit.
    "if (!xts_hello_decode(&m.hello, frame, bytes))",
    "if (!xts_goodbye_decode(&m.goodbye, frame, bytes))",
    "if (xts_clock_decode(&clock, frame, bytes))",
    "if (xts_clock_ack_decode(&ack, frame, bytes))",
    "if (xts_ping_decode(&ping, frame, bytes))",
    "if (xts_pong_decode(&pong, frame, bytes))",
    # These messages are longer than what Ethernet pads.
    "if (m->length < frame_bytes - XTS_CONNECT_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)",
    "if (m->length < frame_bytes - XTS_TOKEN_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)",
    "if (m->length < frame_bytes - XTS_RETURN_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)",
}


def gaps(file: dict[str, Any], text: list[str]) -> Iterator[str]:
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


def main(report: str) -> int:
    found = [
        gap
        for file in json.loads(Path(report).read_text())["files"]
        for gap in gaps(file, (TOP / file["file"]).read_text().splitlines())
    ]
    print("\n".join(["not reached by any test:", *found]) if found else "all that can be reached has been reached")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
