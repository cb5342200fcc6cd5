"""`xts config`: the settings of a process and where each comes from, a check of xts.toml, and the way from XLIO's and
VMA's settings to ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from xts_messages.settings.environment import BY_NAME, OURS
from xts_messages.settings.file_failure import not_read
from xts_messages.terminal.text_table import print_table

from ..._native import ffi, lib
from ..processes.control_pages import Value, page_of, unreachable, value_of
from ..settings import config_import
from . import VERBS
from .env import unknown

_EPILOG = """\
examples:
  xts config explain                  the settings that a program started here would have, and where each comes from
  xts config explain --pid 4711       the settings of a running process
  xts config check /etc/xts/xts.toml
  xts config import --environment     the XLIO_ and VMA_ variables of the environment, as lines of xts.toml

The value of a setting comes from the first of these that has it: xts_configure() in the program; the environment; the
profile named in the environment (XTS_PROFILE); the file of settings (XTS_CONFIG, else /etc/xts/xts.toml); the profile
named in that file; the default.

exit status: 0, 1 when something is wrong, 2 for wrong usage
"""

_CHECK = """\
example:
  xts config check /etc/xts/xts.toml

The lines are NAME = VALUE, with the names that `xts config explain` shows. All mistakes are reported at once.
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "config",
        help=VERBS["config"],
        description="The settings of programs with offloaded sockets.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    explain = _action(actions, "explain", "show every setting in force, and where it comes from", _EPILOG, _explain)
    explain.add_argument(
        "--pid", type=int, metavar="N", help="settings of this process (default: of a program started here now)"
    )
    check = _action(actions, "check", "check a file of settings for mistakes", _CHECK, _check)
    check.add_argument("file", metavar="FILE")
    config_import.add(_action(actions, "import", config_import.TEXT, config_import.EPILOG, config_import.run))


def _action(actions: Any, name: str, text: str, epilog: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=epilog,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=run, endpoint=None)
    return parser


# --- explain ---------------------------------------------------------------------------------------------------------


def of_this_process() -> list[Value]:
    """The initial settings of a program that is started here."""
    where = ffi.new("char[]", 5000)
    found = []
    for variable in OURS:
        number = lib.xts_environment_find(variable.name.encode())
        origin = lib.xts_environment_origin(number, where, len(where))
        value = os.fsdecode(ffi.string(lib.xts_environment_value(number)))
        found.append(value_of(f"{variable.name}\t{value}\t{origin}\t{os.fsdecode(ffi.string(where))}"))
    return found


def faults() -> list[str]:
    """The faults in the settings here, one line each; those of the file first."""
    out = ffi.new("char[]", 5000)
    found: list[str] = []
    while lib.xts_environment_nth_fault(len(found), out, len(out)):
        found.append(ffi.string(out).decode(errors="replace"))
    return found


def file_in_use() -> str | None:
    """The file of settings that this process uses."""
    path = lib.xts_environment_file()
    return os.fsdecode(ffi.string(path)) if path else None


def _explain(arguments: argparse.Namespace) -> int:
    if arguments.pid is None:
        wrong = faults()
        _show(arguments, of_this_process(), [*wrong, *unknown(os.environ)])
        return 1 if wrong else 0
    with page_of(arguments.pid) as page:
        if page is None:
            print(f"xts config explain: {unreachable(arguments.pid)}", file=sys.stderr)
            return 1
        values = page.settings()
        if page.log_is_asked:
            asked = Value("XTS_LOG", page.log_level, "call", "xts log")
            values = [asked if value.name == "XTS_LOG" else value for value in values]
        _show(arguments, values, [])
    return 0


def _show(arguments: argparse.Namespace, values: list[Value], complaints: list[str]) -> None:
    shown = [value for value in values if value.name in BY_NAME and not BY_NAME[value.name].internal]
    if arguments.json:
        settings = [
            {
                "name": value.name,
                "key": BY_NAME[value.name].key or None,
                "value": value.value,
                "origin": value.origin,
                "where": value.where,
            }
            for value in shown
        ]
        print(json.dumps({"pid": arguments.pid, "settings": settings, "wrong": complaints}, indent=2))
        return
    rows = [(BY_NAME[value.name].key, value.name, value.value, value.where) for value in shown]
    print_table(("Setting", "Variable", "Value", "From"), rows, piped_columns=100)
    for complaint in complaints:
        print(complaint)


# --- check -----------------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    path = str(Path(arguments.file))
    out = ffi.new("struct xts_settings_file *")
    result = lib.xts_settings_file_read(out, os.fsencode(path))
    given = sum(bool(line) for line in out.lines)
    mistakes = [_mistake(path, out.fault[i]) for i in range(min(out.count, len(out.fault)))]
    more = out.count - len(mistakes)
    lib.xts_settings_file_free(out)
    if result == 0:
        if arguments.json:
            print(json.dumps({"file": path, "valid": True, "settings": given}, indent=2))
        else:
            print(f"{path} is right: {given} setting{'s' * (given != 1)}")
        return 0
    if not mistakes:
        raise OSError(-result, not_read(path, OSError(-result, os.strerror(-result))))
    if arguments.json:
        print(
            json.dumps({"file": path, "valid": False, "mistakes": len(mistakes) + more, "errors": mistakes}, indent=2)
        )
    else:
        for mistake in mistakes:
            print(mistake["where"] + ": " + mistake["text"], file=sys.stderr)
        if more:
            print(f"{path}: and {more} more", file=sys.stderr)
    return 1


def _mistake(path: str, fault: Any) -> dict[str, Any]:
    text = ffi.string(fault.text).decode(errors="replace")
    where = f"{path}:{fault.line}:{fault.column}" if fault.line else path
    return {"where": where, "line": int(fault.line), "column": int(fault.column), "text": text}
