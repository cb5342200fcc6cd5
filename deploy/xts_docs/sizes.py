"""How large each wing is, in files and lines written by hand, compared with another commit, so that growth is seen:
`PYTHONPATH=deploy python -m xts_docs.sizes [--than COMMIT] [--json]`.

Nothing is limited by it. Files that say in their first line that they are generated do not count, nor do tests' data
and documents. The commit to compare with is the one that the last review measured; without its history (a shallow
clone) only the present is shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from xts_messages.terminal.text_table import print_table

TOP = Path(__file__).parents[2]
#: Of the last review.
THAN = "47852767"
#: Each is a folder and the endings of its sources; a file belongs to the first wing that has it.
WINGS = {
    "host: libxts, C": ("host_lib/native", (".c", ".h")),
    "host: interposer, C": ("host_lib/preload", (".c", ".h")),
    "host: agent, Python": ("host_lib/xts_agent", (".py",)),
    "host: xts_socket, Python": ("host_lib", (".py",)),
    "proxy: workers, C": ("dpu_proxy/native", (".c", ".h")),
    "proxy: supervisor, Python": ("dpu_proxy", (".py",)),
    "messages, C": ("messages/native", (".c", ".h")),
    "messages, Python": ("messages", (".py",)),
    "bpf, C": ("bpf", (".c", ".h")),
    "deploy": ("deploy", (".py", ".c", ".h", ".cmake")),
    "tests": ("tests", (".py", ".c", ".h")),
}


@dataclass(frozen=True, slots=True)
class Size:
    """Files, and the lines in them."""

    files: int = 0
    lines: int = 0


def git(*arguments: str, given: bytes | None = None) -> bytes:
    command = ["git", "-C", str(TOP), *arguments]
    return subprocess.run(command, check=True, capture_output=True, input=given).stdout


def sources(commit: str) -> Iterator[tuple[str, bytes]]:
    """Path and text of each file of a commit. CalledProcessError: it is not in this clone."""
    listed = git("ls-tree", "-r", "--format=%(objectname) %(path)", commit).decode().splitlines()
    wanted = [line.split(" ", 1) for line in listed if wing_of(line.split(" ", 1)[1])]
    asked = "".join(f"{name}\n" for name, _ in wanted).encode()
    told = git("cat-file", "--batch=%(objectsize)", given=asked)
    at = 0
    for _, path in wanted:
        end = told.index(b"\n", at)
        size = int(told[at:end])
        yield path, told[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def wing_of(path: str) -> str | None:
    for wing, (folder, endings) in WINGS.items():
        if path.startswith(folder + "/") and path.endswith(endings):
            return wing
    return None


def sizes(commit: str) -> dict[str, Size]:
    found = dict.fromkeys(WINGS, Size())
    for path, text in sources(commit):
        wing = wing_of(path)
        if wing and b"enerated from" not in text[:200]:
            found[wing] = Size(found[wing].files + 1, found[wing].lines + text.count(b"\n"))
    return found


def total(found: dict[str, Size]) -> Size:
    return Size(sum(size.files for size in found.values()), sum(size.lines for size in found.values()))


def print_sizes(now: dict[str, Size], then: dict[str, Size]) -> None:
    """`then` is empty where it is not known."""
    columns = ["wing", "files", "lines", *(["files then", "lines then", "change"] if then else [])]
    rows = []
    for wing, size in [*now.items(), ("all", total(now))]:
        row = [wing, str(size.files), str(size.lines)]
        if then:
            before = then.get(wing) or total(then)
            row += [str(before.files), str(before.lines), f"{size.lines - before.lines:+}"]
        rows.append(row)
    print_table(columns, rows, columns[1:])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m xts_docs.sizes", description="Files and lines of each wing, compared with another commit.",
        epilog="example: PYTHONPATH=deploy python -m xts_docs.sizes --than HEAD~100",
    )  # fmt: skip
    parser.add_argument("--than", metavar="COMMIT", default=THAN, help=f"the other commit ({THAN})")
    parser.add_argument("--json", action="store_true", help="for programs: {wing: {now, then}}")
    options = parser.parse_args(arguments)
    now = sizes("HEAD")
    try:
        then = sizes(options.than)
    except subprocess.CalledProcessError:
        print(f"{options.than} is not in this clone: only the present is shown", file=sys.stderr)
        then = {}
    if options.json:
        both = {w: {"now": asdict(now[w])} | ({"then": asdict(then[w])} if then else {}) for w in WINGS}
        print(json.dumps(both))
        return 0
    print_sizes(now, then)
    return 0


if __name__ == "__main__":
    sys.exit(main())
