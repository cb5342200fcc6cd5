"""An environment as `deploy/setup` makes it: the package with what pyproject.toml's `dependencies` name, and without
what only developers have. It borrows the packages of the environment in which the tests run."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGE = "xts-offload"


def base_distributions() -> set[str]:
    """The package, what it depends on, and what that depends on; no extras."""
    found: set[str] = set()

    def take(name: str) -> None:
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in found:
            return
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            return  # for another system, or another version of Python
        found.add(name)
        for requirement in requirements:
            if "extra ==" not in requirement and (matched := re.match(r"[\w.-]+", requirement)):
                take(matched[0])

    take(PACKAGE)
    return found


def make(place: Path) -> Path:
    """Makes the environment; returns its interpreter."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([base, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    for name in base_distributions():
        there = metadata.distribution(name)
        for top in {file.parts[0] for file in there.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(str(there.locate_file(top)))
    for file in metadata.files(PACKAGE) or ():
        path = Path(str(file.locate())).resolve()
        if file.parts[0] == ".." and path.parent.name != "bin":  # headers, manual pages and the like
            link = place / path.relative_to(Path(sys.prefix).resolve())
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return place / "bin" / "python"
