"""Proxies that many files of this folder test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from preload_bed import PreloadBed, preload_bed
from scripted_proxy import ScriptedProxy
from shm_proxy import ShmProxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShmProxy]:
    """For programs that call libxts."""
    with ShmProxy(tmp_path_factory.mktemp("proxy")) as made:
        yield made


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    """For programs under the interposer."""
    with preload_bed(tmp_path_factory.mktemp("preload")) as made:
        yield made


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[ScriptedProxy]:
    """One that does what the test says."""
    with ScriptedProxy(tmp_path / "endpoint.sock") as made:
        yield made
