"""A process that never waits is told of what comes to a listener or a UDP socket that others have, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.preload import ALL, PreloadBed, preload_bed
from system.interposer.programs.ticking_server import CLIENTS

PROGRAM = Path(__file__).with_name("programs") / "ticking_server.py"
RULES = ALL + "use xts udp_receiver *:*\nuse xts udp_connect *:*\n"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    with preload_bed(tmp_path_factory.mktemp("bed")) as made:
        yield made


@pytest.mark.parametrize("kind", ["stream", "datagrams"])
@pytest.mark.parametrize("how", ["take", "poll", "select", "epoll", "edges"])
def test_each_client_is_found(bed: PreloadBed, kind: str, how: str) -> None:
    said = bed.run([sys.executable, str(PROGRAM), kind, how], rules=RULES, strict=True).stdout.split()
    assert len(said) == CLIENTS
    assert b"0" not in said, said
