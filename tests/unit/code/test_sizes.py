"""How each wing has grown (xts_docs.sizes)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from xts_docs import sizes


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its first commit is tagged."""
    monkeypatch.setattr(sizes, "TOP", tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    write(tmp_path, "host_lib/native/one.c", 3)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit(tmp_path, "first")
    return tmp_path


def write(top: Path, name: str, lines: int, first: str = "x") -> None:
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([first] * lines) + "\n")


def commit(top: Path, tag: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("add", "-A"), (*who, "commit", "-qm", tag), ("tag", tag)):
        subprocess.run(["git", "-C", top, *arguments], check=True)


def test_only_what_is_written_by_hand_counts(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "host_lib/native/two.h", 4)
    write(repository, "host_lib/xts_agent/agent.py", 5)
    write(repository, "host_lib/setup.py", 7)
    write(repository, "messages/native/wire/wire.h", 9, "/* Generated from a table. Do not edit. */")
    write(repository, "host_lib/NOTES.md", 11)
    commit(repository, "second")
    assert sizes.main(["--than", "first", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["host: libxts, C"] == {"now": {"files": 2, "lines": 7}, "then": {"files": 1, "lines": 3}}
    assert found["host: agent, Python"]["now"] == {"files": 1, "lines": 5}
    assert found["host: xts_socket, Python"]["now"] == {"files": 1, "lines": 7}
    assert found["messages, C"]["now"] == {"files": 0, "lines": 0}
    assert sizes.main(["--than", "first"]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last == ["all", "4", "19", "1", "3", "+16"]


@pytest.mark.usefixtures("repository")
def test_without_the_other_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert sizes.main(["--than", "0123456789"]) == 0
    said = capsys.readouterr()
    assert "0123456789 is not in this clone" in said.err and said.out.splitlines()[-1].split() == ["all", "1", "3"]
