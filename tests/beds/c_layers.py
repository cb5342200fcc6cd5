"""Folders of C files as layers: who uses whose functions, by the symbols of the compiled files."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

#: Folder that uses, folder that defines -> the names.
Uses = dict[tuple[str, str], set[str]]


@cache
def _symbols(objects: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """File, kind and name of each symbol. Read once: with link-time optimisation a plug-in reads the objects, which
    took 17 s of a core for those of the worker one by one."""
    listing = subprocess.run(["nm", "-A", *objects], capture_output=True, text=True, check=True).stdout
    lines = (line.split() for line in listing.splitlines())
    return [(words[0].split(":")[0], words[-2], words[-1]) for words in lines]


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
        folders: dict[str, str] = {}
        for path in sorted(self.sources.rglob("*.c")):
            built = objects.joinpath(*path.parts[1:]).with_suffix(".c.o")
            if built.exists():  # else it is not of this target
                folders[str(built)] = path.relative_to(self.sources).parts[0]
        defined: dict[str, str] = {}
        wanted: dict[str, set[str]] = defaultdict(set)
        for built_as, kind, name in _symbols(tuple(folders)):
            if kind in "TDBRV":
                defined[name] = folders[built_as]
            elif kind == "U":
                wanted[folders[built_as]].add(name)
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
