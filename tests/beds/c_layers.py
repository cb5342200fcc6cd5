"""Folders of C files as layers: who uses whose functions, by the symbols of the compiled files."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

#: Folder that uses, folder that defines -> the names.
Uses = dict[tuple[str, str], set[str]]


@dataclass(frozen=True)
class Wing:
    """Folders of C files, and the layers that they are: a folder may use those before it; of two in a set, neither."""

    sources: Path
    #: CMake's target, built by deploy/setup --dev.
    target: str
    layers: list[set[str]]

    def uses(self) -> Uses:
        """What the folders use of each other."""
        objects = TOP / "build" / "editable" / "CMakeFiles" / f"{self.target}.dir"
        if not objects.is_dir() or shutil.which("nm") is None:
            pytest.skip("needs nm, and the objects of deploy/setup --dev")
        defined: dict[str, str] = {}
        wanted: dict[str, set[str]] = defaultdict(set)
        for path in sorted(self.sources.rglob("*.c")):
            built = objects.joinpath(*path.parts[1:]).with_suffix(".c.o")
            if not built.exists():
                continue  # not of this target
            folder = path.relative_to(self.sources).parts[0]
            listing = subprocess.run(["nm", str(built)], capture_output=True, text=True, check=True).stdout
            for kind, name in (line.split()[-2:] for line in listing.splitlines()):
                if kind in "TDBRV":
                    defined[name] = folder
                elif kind == "U":
                    wanted[folder].add(name)
        out: Uses = defaultdict(set)
        for folder, names in wanted.items():
            for name in names & defined.keys():
                if defined[name] != folder:
                    out[folder, defined[name]].add(name)
        assert out, f"no objects of {self.target} were found"
        return out

    def upward(self) -> Uses:
        """What is used against the order of the layers."""
        rank = {folder: number for number, layer in enumerate(self.layers) for folder in layer}
        return {(user, owner): names for (user, owner), names in self.uses().items() if rank[owner] >= rank[user]}

    def circles(self) -> list[set[str]]:
        """Folders that use each other, directly or by way of others."""
        uses = self.uses()
        reached: dict[str, set[str]] = {}
        for folder in {user for user, _ in uses}:
            found: set[str] = set()
            waiting = [folder]
            while waiting:
                at = waiting.pop()
                new = {owner for user, owner in uses if user == at} - found
                found |= new
                waiting.extend(new)
            reached[folder] = found
        circles: list[set[str]] = []
        for folder, found in reached.items():
            circle = {other for other in found if folder in reached.get(other, set())}
            if circle and circle not in circles:
                circles.append(circle)
        return circles
