"""`xts env`: the environment variables, what they may be, and what they are here.

The declaration is messages/xts_messages/settings/environment.py, which the C code uses too.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from xts_messages.native import ffi, lib
from xts_messages.settings.environment import BY_NAME, OF_TESTS, OURS, VARIABLES, Variable
from xts_messages.terminal.text_table import print_table

from ..options import add_verb

_EXIT_STATUS = "exit status: 0, or 1 when a variable has a value that is not allowed, or a name is not known"


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "env",
        "xts env XTS_SPIN_US",
        run,
    )
    parser.add_argument("name", metavar="NAME", nargs="*", help="only these variables, with their full descriptions")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also list the system's variables that are read, and internal ones, which programs and tests set for "
        "each other",
    )
    parser.epilog = f"{parser.epilog}\n\n{_EXIT_STATUS}"


def fault(name: str, value: str) -> str | None:
    """What is wrong with this value of a variable that C reads, in the library's words; None: nothing."""
    number = lib.xts_environment_find(name.encode())
    out = ffi.new("char[]", 512)
    if number < 0 or not lib.xts_environment_fault(number, os.fsencode(value), out, len(out)):
        return None
    return str(ffi.string(out).decode(errors="replace"))


def faults(environment: Mapping[str, str]) -> list[str]:
    """The values in an environment that are not allowed, with a description each."""
    names = (name for variable in OURS for name in (variable.name, *variable.aliases))
    return [text for name in names if (text := fault(name, environment.get(name, "")))]


def file_faults() -> list[str]:
    """The faults in the file of settings that is used here, each with its place."""
    path, out = lib.xts_environment_file(), ffi.new("char[]", 5000)
    found: list[str] = []
    while path and lib.xts_environment_nth_fault(len(found), out, len(out)):
        text = bytes(ffi.string(out))
        if not text.startswith(ffi.string(path) + b":"):
            break  # those of the environment follow
        found.append(text.decode(errors="replace"))
    return found


def unknown(environment: Iterable[str]) -> list[str]:
    """A sentence on each name that looks like one of ours and is not."""
    ours = (name for name in sorted(environment) if name.startswith("XTS_") and not name.startswith(OF_TESTS))
    return [_not_known(name) for name in ours if name not in BY_NAME]


def _not_known(name: str) -> str:
    close = difflib.get_close_matches(name, [variable.name for variable in VARIABLES if not variable.internal], 1)
    return f"{name} is not a variable of xts-offload" + (f": did you mean {close[0]}?" if close else "")


def run(arguments: argparse.Namespace) -> int:
    if missing := [name for name in arguments.name if name not in BY_NAME]:
        raise OSError(f"{_not_known(missing[0])} (`xts env` lists all)")
    names = dict.fromkeys(BY_NAME[name].name for name in arguments.name)
    chosen = [BY_NAME[name] for name in names] or [v for v in VARIABLES if arguments.all or not (v.internal or v.owner)]
    wrong = {variable.name: text for variable in chosen if (text := fault(variable.name, _value(variable) or ""))}
    strangers = [] if arguments.name else unknown(os.environ)
    if arguments.json:
        listed = [_described(variable, wrong.get(variable.name)) for variable in chosen]
        print(json.dumps({"variables": listed, "unknown": strangers}, indent=2))
    else:
        _print(chosen, [*wrong.values(), *strangers], bool(arguments.name))
    return 1 if wrong else 0


def _value(variable: Variable) -> str | None:
    """The value in this process's environment."""
    return next((value for name in (variable.name, *variable.aliases) if (value := os.environ.get(name))), None)


def _described(variable: Variable, wrong: str | None) -> dict[str, Any]:
    plain = asdict(variable) | {
        "kind": variable.kind.name.lower(),
        "readers": [reader.value for reader in variable.readers],
        "allowed": variable.allowed,
    }
    return plain | {"value": _value(variable), "fault": wrong}


def _print(chosen: list[Variable], complaints: list[str], details: bool) -> None:
    if details:
        for variable in chosen:
            _print_one(variable)
    else:
        rows = [
            (
                variable.name,
                _value(variable) or "",
                "" if variable.default is None else str(variable.default),
                variable.allowed,
                ", ".join(reader.value for reader in variable.readers),
            )
            for variable in chosen
        ]
        print_table(("Variable", "Set to", "Default", "Allowed", "Read by"), rows, piped_columns=100)
        print("`xts env NAME` says what one means.")
    for complaint in complaints:
        print(complaint)


def _print_one(variable: Variable) -> None:
    default = "none" if variable.default is None else str(variable.default)
    facts = {
        "is": _value(variable) or "not set",
        "default": default,
        "allowed": variable.allowed,
        "read by": ", ".join(reader.value for reader in variable.readers),
        "also": ", ".join(variable.aliases),
        "option": variable.option,
        "belongs to": variable.owner,
    }
    print(variable.name)
    print(f"  {variable.meaning}")
    for name, value in facts.items():
        if value:
            print(f"  {name + ':':<12}{value}")
