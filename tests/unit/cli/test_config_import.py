"""`xts config import`: what becomes of the settings of XLIO and VMA."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from xts_messages.settings.environment import OURS
from xts_messages.settings.profiles import NAMES
from xts_socket import cli
from xts_socket._native import ffi, lib
from xts_socket.cli.settings.config_import import _CONVERSIONS
from xts_socket.cli.settings.xlio_vma_settings import BY_NAME, BY_PATH, COUNTERPARTS

KEYS = {variable.key for variable in OURS if variable.key}


def imported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(["config", "import", *arguments])
    return status, capsys.readouterr().out


def taken(text: str) -> dict[str, Any]:
    """What the library takes of it: all of it, as TOML."""
    out = ffi.new("struct xts_settings_file *")
    assert lib.xts_settings_file_parse(out, text.encode(), len(text.encode())) == 0, text
    lib.xts_settings_file_free(out)
    return tomllib.loads(text)


def test_the_table_is_whole() -> None:
    assert len(BY_PATH) == 124
    assert len(BY_PATH) + sum(not one.path for one in COUNTERPARTS) == len(COUNTERPARTS), "a path is there twice"
    assert len(BY_NAME) == sum(len(one.names.split()) for one in COUNTERPARTS), "a name is there twice"
    for one in COUNTERPARTS:
        assert one.key in KEYS if one.key else one.note, one
        assert not one.key or one.key in _CONVERSIONS, one


def test_variables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "XLIO_SELECT_POLL": "100",
        "XLIO_TRACELEVEL": "debug",
        "VMA_RX_POLL": "-1",
        "VMA_APPLICATION_ID": "shop",
        "XLIO_RING_ALLOCATION_LOGIC_TX": "20",
        "XLIO_EXCEPTION_HANDLING": "1",
        "XLIO_STRQ": "1",
        "VMA_SELECT_CQ_IRQ": "0",
        "XLIO_CQ_MODERATION_PERIOD_USEC": "50",
        "XLIO_MEMORY_LIMT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    status, out = imported(capsys, "--environment")
    assert status == 1, "a name that is not theirs"
    assert taken(out) == {
        "application_id": "shop",
        "spin_us": 100,  # of two that mean the same the one that is a time
        "log": "debug",
        "stacks": "thread",
        "strict": True,
        "polling": "always",
        "wakeup_gap_us": 50,
    }
    assert "# VMA_RX_POLL = -1: spin_us is set by XLIO_SELECT_POLL" in out
    assert "# XLIO_STRQ = 1: not needed" in out
    assert "did you mean XLIO_MEMORY_LIMIT?" in out


def test_the_json_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "libxlio_config.json"
    rules = [{"id": "*", "name": "nginx", "actions": ["use xlio tcp_server *:443", "use os tcp_server *:*"]}]
    settings = {
        "acceleration_control": {"app_id": "web", "rules": rules},
        "performance": {"polling": {"iomux": {"poll_usec": 0}}, "threading": {"worker_threads": 4}},
        "monitor": {"log": {"level": "info"}, "exit_report": True},
        "profiles": {"spec": "nvme_bf3"},
    }
    file.write_text(json.dumps(settings))
    status, out = imported(capsys, str(file))
    assert status == 0
    assert taken(out) == {"application_id": "web", "spin_us": 0, "log": "warning", "verbose": True}
    assert "#     application-id nginx *\n#     use xlio tcp_server *:443\n" in out
    assert "workers in xts-proxy.toml" in out and "no similar profile" in out
    found = json.loads(imported(capsys, str(file), "--json")[1])["settings"]
    assert {one["name"] for one in found} >= {"profiles.spec", "monitor.exit_report"}


def test_a_file_of_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "libvma.conf"
    file.write_text("log min-level 3\nuse vma tcp_client *:*\n")
    status, out = imported(capsys, str(file))
    assert (status, taken(out)) == (0, {"rules": str(file)})
    file.write_text("use vma tcp_clinet *:*\n")
    assert cli.main(["config", "import", str(file)]) == 1
    assert f"{file}:1:9: expected a role" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"a": ', "{" * 5000, '{"performance": {"polling": {"unknown": 1}}}', "{}"])
def test_bad_input(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    assert cli.main(["config", "import", str(file)]) == (0 if text == "{}" else 1)
    assert "Traceback" not in capsys.readouterr().err


def test_profiles_of_theirs_are_ours_where_there_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLIO_SPEC", "latency")
    _, out = imported(capsys, "--environment")
    assert taken(out) == ({"profile": "low-latency"} if "low-latency" in NAMES else {})
