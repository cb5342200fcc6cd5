"""What deploy/debian says twice: versions, exported symbols, and the libraries that come with python3-xts."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from beds.shm_proxy import library

TOP = Path(__file__).parents[3]
DEBIAN = TOP / "deploy" / "debian"
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())


def name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~ \[]", requirement)[0]).lower()


def test_the_changelog_has_the_version() -> None:
    first = (DEBIAN / "changelog").read_text().splitlines()[0]
    assert first.startswith(f"xts-offload ({PROJECT['project']['version']}) ")


def test_the_list_of_changes_begins_with_the_version_and_its_day() -> None:
    newest = re.search(r"^## (\S+) \((\S+)\)$", (TOP / "deploy/docs/CHANGELOG.md").read_text(), re.MULTILINE)
    signed = re.search(r"^ -- .*>  (.*)$", (DEBIAN / "changelog").read_text(), re.MULTILINE)
    assert newest and signed
    assert newest.groups() == (PROJECT["project"]["version"], str(parsedate_to_datetime(signed[1]).date()))


def test_the_symbols_are_those_of_the_library() -> None:
    exported = (TOP / "host_lib/native/libxts.map").read_text()
    public = re.findall(r"xts_\w+", exported[: exported.index("local")])
    listed = re.findall(r"^ (xts_\w+)@XTS_1 ", (DEBIAN / "libxts1.symbols").read_text(), re.MULTILINE)
    assert listed == sorted(public)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_the_library_has_the_name_and_version_that_programs_are_linked_with() -> None:
    shown = subprocess.run(["readelf", "-dVW", library()], capture_output=True, text=True, check=True).stdout
    soname = re.search(r"Library soname: \[(.*)\]", shown)
    assert soname and soname[1] == Path(library()).name == (DEBIAN / "libxts1.symbols").read_text().split()[0]
    assert re.search(r"Name: XTS_1$", shown, re.MULTILINE), "its symbols have no version"


def test_every_library_is_pinned() -> None:
    """deploy/build-packages --update does that."""
    wanted = {
        "requirements.txt": PROJECT["project"]["dependencies"],
        "build-requirements.txt": PROJECT["build-system"]["requires"],
    }
    pins = {}
    for file, requirements in wanted.items():
        pins[file] = dict(re.findall(r"^(\S+)==(\S+)", (DEBIAN / file).read_text(), re.MULTILINE))
        assert {name(requirement) for requirement in requirements} <= set(pins[file]), file
    built, used = (pins[file]["cffi"] for file in ("build-requirements.txt", "requirements.txt"))
    assert built == used, "modules are built for the version of cffi that runs them"
