"""The bench tells how far it is, in a log too."""

from __future__ import annotations

import io

import pytest
from bench.steps import Steps
from rich.console import Console


def test_lines_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """One at once, and then not more often than that."""
    clock = iter([100.0, 100.0, 105.0, 110.0, 121.0])
    with Steps(Console(file=io.StringIO()), lambda: next(clock)) as told:
        assert list(told.through(["a", "b", "c", "d"], lambda item: f"the {item}")) == ["a", "b", "c", "d"]
    assert capsys.readouterr().err.splitlines() == ["1 of 4: the a", "4 of 4, about 0:07 left: the d"]


def test_what_ends_before_its_plan_does(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([100.0, 100.0, 121.0])
    with Steps(Console(file=io.StringIO()), lambda: next(clock)) as told:
        items = told.through(["a", "b", *"c" * 98], str, 131.0)
        assert [next(items), next(items)] == ["a", "b"]
    assert capsys.readouterr().err.splitlines()[1] == "2 of 100, about 0:10 left: b"


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    with Steps(Console(file=screen, force_terminal=True)) as told:
        assert list(told.through(["a", "b"], lambda item: f"the {item}")) == ["a", "b"]
    assert "the b" in screen.getvalue() and "2/2" in screen.getvalue()
    assert capsys.readouterr().err == ""
