"""--help is as wide as the terminal: nothing is broken in the middle of a word, and commands stay whole."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from xts_docs.commands import Command, all_commands, parser_of
from xts_messages.terminal.command_line import CommandLine
from xts_proxy.__main__ import main as proxy
from xts_socket.cli import main as xts

EPILOG = """examples:
  some --number 1    what is counted, and by whom
  some --a-long-option=198.18.0.2:8080 --and-another-one=long
  kill -HUP PID      reads the file
                     again, all of its tables

One sentence of the command, which is
written in two lines.
"""


@pytest.fixture
def parser() -> CommandLine:
    return CommandLine(prog="some", description="First.\n\nSecond.", epilog=EPILOG)


def test_sentences_and_comments_are_filled(parser: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "46")
    text = parser.format_help()
    assert "First.\n\nSecond.\n" in text
    assert text.endswith(
        "examples:\n"
        "  some --number 1    what is counted, and by\n"
        "                     whom\n"
        "  some --a-long-option=198.18.0.2:8080 --and-another-one=long\n"
        "  kill -HUP PID      reads the file\n"
        "                     again, all of its\n"
        "                     tables\n"
        "\n"
        "One sentence of the command, which is\n"
        "written in two lines.\n"
    )
    monkeypatch.setenv("COLUMNS", "100")
    assert parser.format_help().endswith("\nOne sentence of the command, which is written in two lines.\n")


def test_where_there_is_no_room_a_comment_is_below(parser: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "36")
    assert "\n  some --number 1\n        what is counted, and by\n        whom\n" in parser.format_help()


def test_no_verb_shows_how_its_sentences_are_broken_in_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as wide there as lines of code, which is wider than most terminals."""
    monkeypatch.setenv("COLUMNS", "80")
    wide = [line for one in all_commands() for line in lines_of(one) if len(line) > 80 and not line.startswith(" ")]
    assert len(wide) > 10
    for main in (proxy, xts):
        for parser in with_verbs(parser_of(main)):
            kept = [line for line in parser.format_help().splitlines() if len(line) > 80]
            assert all(line.startswith(("  ", "usage:")) for line in kept), kept


def lines_of(command: Command) -> list[str]:
    return command.epilog.splitlines() + [line for verb in command.verbs for line in lines_of(verb)]


def with_verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from with_verbs(verb)
