"""`xts files`, and the files of the checkout that it has to include."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xts_socket import cli

TOP = Path(__file__).resolve().parents[3]
#: kind -> where its files are in the checkout
SOURCES = {
    "config": [*TOP.glob("deploy/*.toml")],
    "systemd": [*TOP.glob("deploy/systemd/*")],
    "prometheus": [*TOP.glob("deploy/prometheus/*")],
    "wireshark": [*TOP.glob("deploy/wireshark/*")],
    "examples": [
        *TOP.glob("host_lib/examples/*.py"),
        *TOP.glob("dpu_proxy/examples/*.py"),
        *TOP.glob("host_lib/native/examples/*.c"),
    ],
}


def test_all_files_are_there_as_in_the_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["files", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["files"]
    assert {(row["kind"], row["name"]) for row in listed} == {
        (kind, source.name) for kind, sources in SOURCES.items() for source in sources
    }
    for row in listed:
        (source,) = [source for source in SOURCES[row["kind"]] if source.name == row["name"]]
        assert Path(row["path"]).read_bytes() == source.read_bytes(), f"{source}: run deploy/setup"


def test_paths_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["files", "xts.lua"]) == 0
    assert Path(capsys.readouterr().out.rstrip("\n")).name == "xts.lua"
    assert cli.main(["files", "systemd"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(SOURCES["systemd"])
    assert cli.main(["files"]) == 0
    assert "dissector for Wireshark" in capsys.readouterr().out


def test_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["files", "xts.lau"]) == 1
    assert "there is no xts.lau; kinds are config, systemd, prometheus, wireshark, examples" in capsys.readouterr().err
