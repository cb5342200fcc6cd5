"""A command's completion for fish, out of its argparse parser.

shtab, which makes those of the other shells, has none for fish. argcomplete has one, and starts the program again for
each press of the key, which takes some tenths of a second here. This is a script, as shtab's are.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

_DESCRIPTION_CHARACTERS = 80


def script(parser: argparse.ArgumentParser, files: set[str]) -> str:
    """Completes verbs, options and their choices. `files`: metavars of what takes a file."""
    return "\n".join([f"complete -c {parser.prog} -f", *_lines(parser, parser.prog, [], files)])


def _lines(parser: argparse.ArgumentParser, program: str, before: list[str], files: set[str]) -> Iterator[str]:
    """Of a parser behind these verbs."""
    verbs = [name for action in parser._actions for name in _verbs(action)]
    seen = [f"__fish_seen_subcommand_from {verb}" for verb in before]
    none_yet = [f"not __fish_seen_subcommand_from {' '.join(verbs)}"] if verbs else []
    start = _start(program, [*seen, *none_yet])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, verb in action.choices.items():
                if name in texts:  # others are names of before
                    yield f"{start} -a {_quoted(name)}{_described(texts[name])}"
                yield from _lines(verb, program, [*before, name], files)
        elif action.nargs == argparse.REMAINDER:  # a command, with its own completion
            yield f"{start} -a '(__fish_complete_subcommand --fcs-skip={1 + len(before)})'"
        elif action.help is not argparse.SUPPRESS and (line := _argument(parser, action, files)):
            yield start + line


def _verbs(action: argparse.Action) -> list[str]:
    return list(action.choices) if isinstance(action, argparse._SubParsersAction) else []


def _start(program: str, conditions: list[str]) -> str:
    return f"complete -c {program}" + (f" -n {_quoted('; and '.join(conditions))}" if conditions else "")


def _argument(parser: argparse.ArgumentParser, action: argparse.Action, files: set[str]) -> str:
    """What completes an option, or an argument that is a file or has choices; "": nothing does."""
    values = f" -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else ""
    values += " -F" if action.metavar in files else ""
    if not action.option_strings:
        return values
    names = [f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in action.option_strings]
    needs = " -r" if action.nargs not in (0, "?") else ""
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return "".join(names) + needs + values + _described(text)


def _described(text: str) -> str:
    shown = textwrap.shorten(text, _DESCRIPTION_CHARACTERS, placeholder=" …")
    return f" -d {_quoted(shown)}" if shown else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
