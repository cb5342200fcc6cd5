"""Whoever builds the packages again gets the same bytes: neither place nor settings of the builder are in them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from beds import debian_root

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(3000)]
BUILD_S = 1500
#: Another builder: deploy/build-packages has these for this test.
ANOTHER = {
    "PACKAGES_SOURCE": "/srv/another/place",
    "PACKAGES_TZ": "Pacific/Auckland",
    "PACKAGES_LOCALE": "C",
    "PACKAGES_UMASK": "077",
}


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.deb"))}


def built(folder: Path, **settings: str) -> dict[str, str]:
    command = [debian_root.TOP / "deploy/build-packages", "--output", folder]
    environment = os.environ | settings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stderr
    return digests(folder)


def test_another_builder_gets_the_same(packages: Path, tmp_path: Path) -> None:
    first = built(tmp_path / "first") if os.environ.get("XTS_TEST_PACKAGES") else digests(packages)
    assert len(first) >= 6
    assert built(tmp_path / "second", **ANOTHER) == first
