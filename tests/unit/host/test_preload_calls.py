"""CALLS.md, the interposer's list of calls, against what the library exports and resolves."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from beds.preload import preload_library

FOLDER = Path(__file__).resolve().parents[3] / "host_lib" / "preload"
# Called by us, not by programs through us.
ONLY_CALLED = {"pread", "tee", "fork"}


def documented() -> set[str]:
    table = (FOLDER / "CALLS.md").read_text().split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) == len(set(names))
    return set(names)


def test_every_exported_call_is_documented() -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", preload_library()], check=True, capture_output=True, text=True)
    exported = {line.split()[-1] for line in done.stdout.splitlines() if line.split()[1] in "TWi"}
    assert exported == documented()
    assert len(exported) >= 93


def symbols(path: str) -> list[tuple[str, str]]:
    """(address, name with version) of the functions that a library defines."""
    command = ["nm", "-D", "--defined-only", "--with-symbol-versions", path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(row[0], row[2]) for row in rows if len(row) == 3 and row[1] in "TWi"]


def test_no_other_name_of_a_call_leads_past_us() -> None:
    """The C library has some functions under several names, and a program may be linked with any of the public ones."""
    (libc,) = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line}
    ours = documented()
    names: dict[str, set[str]] = {}
    for address, name in symbols(libc):
        names.setdefault(address, set()).add(name)
    missing = {
        name
        for same in names.values()
        if ours & {name.partition("@")[0] for name in same}
        for name in same
        if name.partition("@")[0] not in ours and not name.endswith("@GLIBC_PRIVATE")
    }
    assert len(names) > 1000 and not missing


def test_every_resolved_call_is_one_of_them() -> None:
    resolved = set(re.findall(r"\bX\((\w+)\)", (FOLDER / "real.h").read_text().split("#define XTS_REAL_CALLS")[1]))
    assert len(resolved) > 60
    assert resolved - documented() == ONLY_CALLED
