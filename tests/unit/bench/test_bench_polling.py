"""The bench of polling: its plan, its tables, and what it writes into a proxy's file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from bench import polling
from bench.beds import Bed
from xts_messages.settings.environment import BY_NAME
from xts_proxy.config.config import RELOADABLE


def test_each_variant_is_measured_once_and_begins_in_turn() -> None:
    steps = polling.plan(3, ["shm", "afxdp-soft"])
    assert [(path, number) for path, number, _ in steps] == [(p, n) for n in range(3) for p in ("shm", "afxdp-soft")]
    for path, _, order in steps:
        names = [variant.name for variant in order]
        assert len(set(names)) == len(names)
        assert any(variant.bed for variant in order) == path.startswith("afxdp"), "cards are polled there only"
    assert len({order[0].name for path, _, order in steps if path == "shm"}) == 3


def test_variants_name_settings_that_there_are() -> None:
    for variant in polling.VARIANTS:
        assert {name for name, _ in variant.host} <= set(BY_NAME)
        assert {name for name, _ in variant.proxy} <= RELOADABLE, "the proxy takes them over while it runs"


def test_a_proxy_has_the_keys_of_a_variant_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "proxy.toml"
    text = '[proxy]\nqueue = "shm"\n\n[policy]\ndefault = "allow"\n'
    file.write_text(text)
    taken, killed = [0], []

    def answer(path: str, question: object) -> dict[str, Any]:
        return {"proxy": {"pid": 4711, "reloads": {"taken": taken[0], "refused": 0}}}

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        taken[0] += 1

    monkeypatch.setattr(polling.control_socket, "ask", answer)
    monkeypatch.setattr(os, "kill", kill)
    bed = Bed("b", str(tmp_path / "endpoint.sock"))
    polling.configure(bed, {"polling": "always", "spin_us": 0})
    assert file.read_text() == text.replace("[proxy]\n", '[proxy]\npolling = "always"\nspin_us = 0\n')
    polling.configure(bed, {})
    assert file.read_text() == text
    assert killed == [(4711, signal.SIGHUP)] * 2


def test_the_table_has_medians_of_both_loads() -> None:
    metrics = {"p50_us": 10.0, "p99_us": 2000.0, "host_share": 0.5, "device_share": 1.0}
    of = {name: {0: value, 1: value * 3, 2: value * 2} for name, value in metrics.items()}
    data = {load.key: {f"shm {polling.DEFAULT}": of} for load in polling._LOADS}
    assert polling.rows(data, "shm", polling._LOADS[0]) == [
        (polling.DEFAULT, "20.0 (10.0–30.0)", "4,000.0 (2,000.0–6,000.0)", "100% (50%–150%)", "200% (100%–300%)")
    ]
    lines = polling.markdown(data, ["shm"]).splitlines()
    assert lines[-1].count("4,000.0") == 2 and lines[-1].startswith("| the defaults |")
