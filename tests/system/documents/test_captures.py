"""deploy/docs/captures: a scene ends, its picture is what was on the screen, and what fails is said. Needs tmux."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from xts_docs import captures
from xts_docs.captures import SCENES, Scene, SceneError, Shot, take

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{captures.TOP}/.venv/bin", prepend=":")


def test_a_picture_is_what_was_on_the_screen(tmp_path: Path) -> None:
    """Of a mistake: one line, which names the word that was meant."""
    (scene,) = (one for one in SCENES if one.name == "mistake")
    take(scene, 120, "120", {}, tmp_path)
    first, second = (tmp_path / "mistake-120.txt").read_text().splitlines()
    assert "did you mean process?" in first and "did you mean --pid?" in second
    with pytest.raises(SceneError, match="it has ended with status 2"):
        take(replace(scene, status=0), 120, "120", {}, tmp_path)


def test_keys_lead_to_pictures_with_colours(tmp_path: Path) -> None:
    scene = Scene(
        "menu",
        'read -p "first " a; printf "\\033[31m%s\\033[0m\\n" "$a"; read -p "second" b',
        (Shot("before", "first"), Shot("", "(?m)^x", ("x", "Enter")), Shot("after", "second")),
    )
    take(scene, 80, "80", {}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("after-80.ansi", "after-80.txt", "before-80.ansi", "before-80.txt")
    ]
    assert re.search(r"\x1b\[[\d;]*31m", (tmp_path / "after-80.ansi").read_text())
    assert "\x1b" not in (tmp_path / "after-80.txt").read_text()


def test_what_never_comes_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "DEADLINE_S", 1.0)
    with pytest.raises(SceneError, match="'never' is not on the screen"):
        take(Scene("none", "sleep 60", (Shot("none", "never"),)), 80, "80", {}, tmp_path)
    assert not list(tmp_path.iterdir())
