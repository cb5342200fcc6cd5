"""Which lines the corpus of a target reaches, file by file, by clang's source-based coverage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def _tool(name: str) -> str:
    """Debian has it with a version, or without."""
    clang = Path(shutil.which("clang") or "clang").resolve()
    neighbour = clang.with_name(name)
    return str(neighbour) if neighbour.exists() else name


def print_coverage(target: str, binary: Path, directory: Path) -> None:
    """Runs the corpus once and prints a line for each file of the product. CalledProcessError: a tool failed."""
    raw, merged = directory / "coverage.raw", directory / "coverage"
    inputs = [str(path) for path in sorted((directory / "corpus").iterdir())]
    subprocess.run(
        [str(binary), "-runs=0", str(directory / "corpus")],
        env=os.environ | {"LLVM_PROFILE_FILE": str(raw)},
        check=True,
        capture_output=True,
    )
    subprocess.run([_tool("llvm-profdata"), "merge", "-sparse", str(raw), "-o", str(merged)], check=True)
    report = subprocess.run(
        [_tool("llvm-cov"), "export", "-summary-only", f"-instr-profile={merged}", str(binary)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = []
    for entry in json.loads(report.stdout)["data"][0]["files"]:
        path = Path(entry["filename"])
        if path.is_relative_to(TOP) and not path.is_relative_to(TOP / "tests"):
            lines = entry["summary"]["lines"]
            if not lines["count"]:
                continue
            rows.append((str(path.relative_to(TOP)), int(lines["covered"]), int(lines["count"])))
    reached, count = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{target}: {len(inputs)} inputs reach {reached} of {count} lines, {100 * reached / max(1, count):.1f} %")
    for name, covered, lines_of_file in sorted(rows, key=lambda row: row[1] / max(1, row[2])):
        print(f"  {100 * covered / max(1, lines_of_file):5.1f} %  {covered:5d} of {lines_of_file:5d}  {name}")
