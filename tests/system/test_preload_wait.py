"""Waiting under the interposer: the same scripts on kernel sockets and on offloaded ones, with equal results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from preload_bed import PreloadBed, preload_bed
from wait_scripts import SCRIPTS

HERE = Path(__file__).parent
PROGRAM = [sys.executable, str(HERE / "wait_scripts.py")]
PLAIN_S = 60
# The host's own connections to a wildcard listener are the kernel's, the others offloaded; here both are from the host.
BOTH_HALVES = "use os tcp_server 127.0.0.0/8:*\nuse xts tcp_server *:*\nuse xts tcp_client *:*\n"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    with preload_bed(tmp_path_factory.mktemp("wait")) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    done = subprocess.run(PROGRAM, capture_output=True, check=True, timeout=PLAIN_S)
    traces: dict[str, Any] = json.loads(done.stdout)
    return traces


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_as_on_the_kernel(name: str, bed: PreloadBed, expected: dict[str, Any]) -> None:
    assert expected[name], "the script notes nothing"
    assert not [note for note in expected[name] if note[0] == "failed"]
    done = bed.run([*PROGRAM, name], env={"XTS_LOG": "1"})
    assert json.loads(done.stdout)[name] == expected[name], done.stderr.decode()
    assert b": offloaded" in done.stderr


def test_a_listener_in_both_worlds(bed: PreloadBed, expected: dict[str, Any]) -> None:
    done = bed.run([*PROGRAM, "local_listener"], rules=BOTH_HALVES, env={"XTS_LOG": "1"})
    assert json.loads(done.stdout)["local_listener"] == expected["local_listener"], done.stderr.decode()
    assert b"(LOCAL)" in done.stderr, "no connection came to the kernel's half"
    assert b": offloaded" in done.stderr
