"""Tables and colours follow the terminal's width, COLUMNS, NO_COLOR, FORCE_COLOR and TERM: our tables, and rich's."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from beds.terminal import environment, written

OURS = """
from xts_messages.terminal.text_table import print_table
print_table(("A", "B"), [("ok", "word " * 60), ("fail", "x")], styles={"ok": "green", "fail": "red"})
"""
RICH = """
from rich.console import Console
from rich.table import Table
from xts_messages.terminal import terminal
table = Table("A", "B", box=None)
table.add_row("[green]ok[/]", "word " * 60)
Console(width=terminal.piped_columns(240)).print(table)
"""
PROGRAMS = pytest.mark.parametrize("program", [OURS, RICH], ids=["ours", "rich"])
COLOUR = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


def widest(text: str) -> int:
    return max(len(line.rstrip()) for line in plain(text))


def in_pipe(program: str, **given: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment(given), capture_output=True, text=True, check=True).stdout


def in_terminal(program: str, columns: int, **given: str) -> str:
    return written([sys.executable, "-c", program], columns, **given)


@PROGRAMS
def test_a_table_is_as_wide_as_its_terminal(program: str) -> None:
    for columns in (60, 120):
        assert columns - 6 <= widest(in_terminal(program, columns)) <= columns


@PROGRAMS
def test_a_terminal_that_says_it_has_no_columns_has_eighty(program: str) -> None:
    assert 74 <= widest(in_terminal(program, 0)) <= 80


@PROGRAMS
def test_columns_goes_before_the_terminal_and_the_pipe(program: str) -> None:
    assert 54 <= widest(in_terminal(program, 120, COLUMNS="60")) <= 60
    assert 54 <= widest(in_pipe(program, COLUMNS="60")) <= 60
    assert widest(in_terminal(program, 50, COLUMNS="")) <= 50
    assert widest(in_pipe(program)) > 200


@PROGRAMS
def test_colours(program: str) -> None:
    assert COLOUR.search(in_terminal(program, 80))
    assert not COLOUR.search(in_terminal(program, 80, NO_COLOR="1"))
    assert COLOUR.search(in_terminal(program, 80, NO_COLOR=""))
    assert not COLOUR.search(in_terminal(program, 80, TERM="dumb"))
    assert not COLOUR.search(in_pipe(program))
    assert COLOUR.search(in_pipe(program, FORCE_COLOR="1"))
    assert not COLOUR.search(in_pipe(program, FORCE_COLOR="1", NO_COLOR="1"))
    assert not COLOUR.search(in_pipe(program, FORCE_COLOR=""))


def test_doctor_on_a_terminal_without_width() -> None:
    """Its cells were 8 columns wide there, each path in pieces."""
    shown = written(
        [sys.executable, "-m", "xts_socket.cli", "doctor"], 0, NO_COLOR="1", XTS_ENDPOINT="/nowhere/at.sock"
    )
    assert "\x1b" not in shown and "/nowhere/at.sock" in shown
    assert 60 < widest(shown) <= 80
