"""Random calls on datagram sockets come to the same on the kernel's sockets and under the interposer."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from beds.interposed_place import UDP
from beds.preload import PreloadBed

PROGRAM = str(Path(__file__).with_name("programs") / "random_datagrams.py")
SCRIPTS = 100
RANDOM_SCRIPTS = 300
RUN_S = 100


def compare(bed: PreloadBed, first: int, folder: Path, scripts: int = SCRIPTS) -> None:
    command = [sys.executable, PROGRAM, str(first), str(scripts)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
    traces = folder / "traces.json"
    traces.write_bytes(subprocess.run(command, env=plain, capture_output=True, check=True, timeout=RUN_S).stdout)
    expected: list[Any] = json.loads(traces.read_text())
    found: list[Any] = json.loads(bed.run([*command, str(traces)], rules=UDP, strict=True, timeout_s=RUN_S).stdout)
    for number, (theirs, ours) in enumerate(zip(expected, found, strict=True), first):
        assert ours == theirs, f"script {number}, call {len(ours)}: {ours[-1]}, on the kernel {theirs[len(ours) - 1]}"


def test_as_on_the_kernel(bed: PreloadBed, tmp_path: Path) -> None:
    compare(bed, 1, tmp_path)


def test_as_on_the_kernel_by_a_random_seed(bed: PreloadBed, tmp_path: Path) -> None:
    first = secrets.randbits(32)
    print(f"scripts from {first}")
    compare(bed, first, tmp_path, RANDOM_SCRIPTS)
