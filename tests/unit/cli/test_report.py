"""`xts report`: one file, with what there is, why the rest is not, and no secret."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from xts_socket.cli import main
from xts_socket.cli.verbs import report


def contents(path: Path) -> dict[str, str]:
    found = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file and member.mode == 0o600
            found[member.name.split("/", 1)[1]] = file.read().decode()
    return found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """Where neither proxy nor agent run."""
    secret = tmp_path / "token.key"
    secret.write_text("the-secret-itself")
    config = tmp_path / "xts-proxy.toml"
    config.write_text(f'# password: hunter2\n[proxy]\nmetrics_token = "{secret}"\n')
    (tmp_path / "xts-agent.toml").write_text("half = [")
    monkeypatch.setattr(report, "CONFIGURATIONS", (config, tmp_path / "xts-agent.toml"))
    monkeypatch.setenv("XTS_ENDPOINT", str(tmp_path / "none.sock"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    path = tmp_path / "report.tar.gz"
    assert main(["report", "--output", str(path)]) == 0
    return path, contents(path)


def test_what_is_there_and_why_the_rest_is_not(made: tuple[Path, dict[str, str]]) -> None:
    path, found = made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(found["versions.json"])["packages"]["xts-offload"]
    assert json.loads(found["environment.json"])["XTS_ENDPOINT"].endswith("none.sock")
    assert json.loads(found["doctor.json"])["works"] is False
    assert json.loads(found["xts-proxy.json"])["proxy"]["metrics_token"].endswith("token.key")
    rows: dict[str, Any] = {row["name"]: row for row in json.loads(found["manifest.json"])["parts"]}
    assert "no agent or proxy at" in rows["status.json"]["missing"]
    assert "xts-agent.json" not in found and rows["xts-agent.json"]["missing"]
    assert set(found) == {name for name, row in rows.items() if "missing" not in row} | {"manifest.json"}


def test_no_secret_is_in_it(made: tuple[Path, dict[str, str]]) -> None:
    _, found = made
    text = "".join(found.values())
    for secret in ("the-secret-itself", "hunter2", "another-secret"):
        assert secret not in text


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.tar.gz"
    there.write_text("mine")
    assert main(["report", "--output", str(there)]) == 1
    assert "File exists" in capsys.readouterr().err
    assert there.read_text() == "mine"
