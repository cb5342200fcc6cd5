"""Features that the commands share: what they say of mistakes, --version, --print-completion, and repeating a table
(--watch)."""

from __future__ import annotations

import argparse
import difflib
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from xts_messages.version import __version__

from . import fish_completion
from .help_text import Help

SHELLS = ("bash", "zsh", "fish", "tcsh")
_TOLD_MAX = 30  # values of an option
_CLEAR = "\x1b[H\x1b[2J"
#: Metavars of options that take a file; the shell completes file names for them.
_FILES = {"FILE", "PATH"}


class CommandLine(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, without the usage, which would hide it. Parsers of verbs are of
    this class, too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": Help, **settings})

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ") if message.startswith("unrecognized ") else ""
        for word in unknown.split():
            close = difflib.get_close_matches(word.partition("=")[0], _options(self), 1) if word[:2] == "--" else []
            message += f"; did you mean {close[0]}?" if close else ""
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')} (see `{self.prog} --help`)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            close = difflib.get_close_matches(str(value), names, 1)
            known = ", ".join(names) if len(names) <= _TOLD_MAX else f"one of {len(names)}, such as {names[0]}"
            advice = f"did you mean {close[0]}?" if close else f"it can be {known}"
            raise argparse.ArgumentError(action, f"unknown value {value!r}; {advice}")


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The names of all options, those of verbs among them."""
    found: list[str] = []
    for action in parser._actions:
        found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                found += _options(verb)
    return found


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds --version and --print-completion to a whole command."""
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        choices=SHELLS,
        metavar="SHELL",
        help=f"print a completion script for a shell ({', '.join(SHELLS)})",
    )


class _Completion(argparse.Action):
    """Prints the script and exits, as --version does."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        print(completion(parser, values))
        parser.exit(0)


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """A shell's script that completes the command's verbs, options and files. OSError: shtab is not installed."""
    if shell == "fish":
        return fish_completion.script(parser, _FILES)
    try:
        import shtab
    except ImportError:
        raise OSError("completion needs the package shtab: pip install shtab") from None
    _mark_files(parser, shtab.FILE)
    return str(shtab.complete(parser, shell))


def _mark_files(parser: argparse.ArgumentParser, mark: Any) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _mark_files(verb, mark)
        elif action.metavar in _FILES:
            action.complete = mark  # type: ignore[attr-defined]


def add_watch(parser: argparse.ArgumentParser) -> None:
    """--watch [SECONDS]."""
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=1.0,
        metavar="SECONDS",
        help="repeat it every SECONDS (default: 1), until interrupted",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise argparse.ArgumentTypeError("must be a number of seconds from 0.1 to 86400")
    return seconds


def watch(seconds: float | None, show: Callable[[], int], goes_on: bool = False, clears: bool = True) -> int:
    """Calls show() once, or every `seconds` seconds until it fails or KeyboardInterrupt; returns the exit status.
    `goes_on`: a failure does not end it, since the failure is what is shown. `clears`: clears a terminal each time."""
    while True:
        if clears and seconds is not None and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        status = show()
        if seconds is None or (status and not goes_on):
            return status
        sys.stdout.flush()
        time.sleep(seconds)
