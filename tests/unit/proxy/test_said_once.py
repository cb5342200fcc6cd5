"""What the workers' process finds at its start is logged, and not again by the ones that go on when it has died."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xts_proxy.supervisor.crash import Crashes
from xts_proxy.supervisor.log import LOG
from xts_proxy.tenants import guarantees
from xts_proxy.tls import ulp_tls

SWAPPED = "keys are in memory that may be swapped"
OTHER = "something that only this one has found"
TITLES = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def nothing(*_: Any, **__: Any) -> Any:
    return None


def recovered(crashes: Crashes, notes: list[tuple[int, str]]) -> None:
    process = SimpleNamespace(succeed=lambda *_: ([], notes))
    channels = SimpleNamespace(recover=lambda: 0)
    parts = [None, nothing, process, channels, SimpleNamespace(connections=[])]
    crashes._recover(*(cast(Any, part) for part in parts))


def test_the_next_workers_do_not_repeat_it(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOG, "propagate", True)
    caplog.set_level(logging.INFO, LOG.name)
    crashes = Crashes(10, [])
    crashes.noted([(logging.WARNING, SWAPPED)])
    recovered(crashes, [(logging.WARNING, SWAPPED), (logging.WARNING, OTHER)])
    assert caplog.messages == [OTHER]
    recovered(crashes, [(logging.WARNING, SWAPPED), (logging.WARNING, OTHER)])
    assert caplog.messages == [OTHER]


@pytest.mark.parametrize(("swaps", "level"), [(True, logging.WARNING), (False, logging.INFO)])
def test_it_matters_where_there_is_swap_space(swaps: bool, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lib:
        XTS_TLS_KEY_MEMORY_PLAIN = 3

        @staticmethod
        def xts_tls_key_memory_open(_: int, why: Any, __: int) -> int:
            why[0 : len(SWAPPED)] = SWAPPED.encode()
            return 0

    monkeypatch.setattr(ulp_tls, "lib", Lib)
    monkeypatch.setattr(ulp_tls, "counts", lambda: {"key_memory_kind": 3})
    assert ulp_tls.open_key_memory(1 << 20, swaps=swaps) == [(level, f"tls: {SWAPPED}")]


@pytest.mark.parametrize(
    ("text", "found"),
    [(TITLES, False), (f"{TITLES}/dev/sda2 partition 1048572 0 -2\n", True), ("", False), (None, True)],
)
def test_swap_space_is_looked_for(tmp_path: Path, text: str | None, found: bool) -> None:
    table = tmp_path / "swaps"
    if text is not None:
        table.write_text(text)
    assert guarantees._swaps(table) == found
