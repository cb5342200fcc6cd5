"""`xts config import`: settings of XLIO and VMA as lines of xts.toml, with a note on each name.

It reads their variables, XLIO's JSON file, and the rule files of both, which can be used unchanged.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xts_messages.settings.configuration_file import read_bytes
from xts_messages.settings.file_failure import not_read
from xts_messages.settings.profiles import PROFILES

from ..._rules import Rules, RulesError
from .xlio_vma_settings import BY_NAME, BY_PATH, Counterpart

TEXT = "print settings of XLIO and VMA as lines of xts.toml, with a note about each"
EPILOG = """\
examples:
  xts config import --environment > xts.toml      the XLIO_ and VMA_ variables that are set here
  xts config import /etc/libxlio_config.json
  xts config import /etc/libvma.conf              a file of rules: it works as it is

exit status: 0, 1 when a name is not known or a file cannot be read
"""
_PREFIXES = ("XLIO_", "VMA_")
_SPIN_FOREVER_US = 1000
_GAP_MAX_US = 10_000


@dataclass(frozen=True, slots=True)
class Imported:
    """The result for one of their settings."""

    name: str
    value: str
    key: str  # our setting; "": there is none
    toml: str  # its value; "": not taken over
    note: str
    known: bool = True


def add(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", metavar="FILE", nargs="?", help="XLIO's JSON file, or a file of rules of either")
    source.add_argument(
        "--environment", action="store_true", help="read the XLIO_ and VMA_ variables of the environment"
    )


def run(arguments: argparse.Namespace) -> int:
    found = list(_first_wins(_of_environment(os.environ) if arguments.environment else _of_file(arguments.file)))
    if arguments.json:
        print(json.dumps({"settings": [asdict(one) for one in found]}, indent=2))
    else:
        print("# Settings of XLIO or VMA, by `xts config import`. `xts config check` looks at this file.")
        for one in found:
            print(_line(one))
    return 0 if all(one.known for one in found) else 1


def _line(one: Imported) -> str:
    comment = "".join(char if " " <= char <= "~" else "?" for char in f"{one.name} = {one.value}")
    note = f": {one.note}" if one.note else ""
    if not one.toml:
        return f"# {comment}{note}"
    if one.key == "rules" and not one.toml.startswith('"'):
        return f"# {comment}{note}:\n" + "\n".join(f"#     {line}" for line in one.toml.splitlines())
    return f"{one.key} = {one.toml}  # {comment}{note}"


def _first_wins(found: Iterator[Imported]) -> Iterator[Imported]:
    """If several of their settings make one of ours, the first one is used."""
    seen: dict[str, str] = {}
    for one in found:
        if one.toml and one.key in seen:
            yield Imported(one.name, one.value, one.key, "", f"{one.key} is set by {seen[one.key]}")
            continue
        if one.toml:
            seen[one.key] = one.name
        yield one


# --- what there is ---------------------------------------------------------------------------------------------------


def _of_environment(environment: Mapping[str, str]) -> Iterator[Imported]:
    """In the order of the table, in which the better one of two that mean the same comes first."""
    order = {name: number for number, name in enumerate(BY_NAME)}
    theirs = [(name, prefix) for name in environment for prefix in _PREFIXES if name.startswith(prefix)]
    for name, prefix in sorted(
        theirs, key=lambda pair: (order.get(pair[0].removeprefix(pair[1]), len(order)), pair[0])
    ):
        known = [prefix + short for short in BY_NAME]
        yield _imported(name, environment[name], BY_NAME.get(name.removeprefix(prefix)), known)


def _of_file(path: str) -> Iterator[Imported]:
    try:
        text = read_bytes(path)
    except OSError as failure:
        raise OSError(failure.errno, not_read(path, failure)) from None
    if text.lstrip()[:1] != b"{":
        yield _of_rules(path, text)
        return
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise OSError(f"{path}: not JSON: {failure}") from None
    for name, value in _leaves(tree, ""):
        yield _imported(name, value, BY_PATH.get(name), list(BY_PATH))


def _leaves(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path not in BY_PATH:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _of_rules(path: str, text: bytes) -> Imported:
    try:
        Rules.parse(text, path)
    except RulesError as failure:
        raise OSError(f"{failure}") from None
    return Imported(
        path, "a file of rules", "rules", json.dumps(str(Path(path).absolute())), "the file works unchanged"
    )


def _imported(name: str, value: Any, counterpart: Counterpart | None, names: list[str]) -> Imported:
    shown = value if isinstance(value, str) else json.dumps(value)
    if counterpart is None:
        close = difflib.get_close_matches(name, names, 1)
        note = "XLIO and VMA have no setting of this name" + (f": did you mean {close[0]}?" if close else "")
        return Imported(name, shown, "", "", note, known=False)
    if not counterpart.key:
        return Imported(name, shown, "", "", counterpart.note)
    toml, note = _CONVERSIONS[counterpart.key](value)
    return Imported(name, shown, counterpart.key, toml, note or counterpart.note)


# --- conversions: the value in TOML ("": it is not taken), and a note ------------------------------------------------

_Converted = tuple[str, str]


def _number(value: Any) -> int | None:
    try:
        return int(str(value).strip(), 0)
    except ValueError:
        return None


def _text(value: Any) -> _Converted:
    return (
        (json.dumps(str(value), ensure_ascii=False), "") if str(value) else ("", "not taken over: the value is empty")
    )


def _rules(value: Any) -> _Converted:
    """A path, or the array of XLIO's JSON file as lines of a rule file."""
    if isinstance(value, str):
        return json.dumps(str(Path(value).absolute())), ""
    lines = []
    for group in value if isinstance(value, list) else []:
        if not isinstance(group, dict):
            continue
        lines.append(f"application-id {group.get('name', '*')} {group.get('id', '*')}")
        lines += [str(action) for action in group.get("actions", [])]
    return "\n".join(lines), ""


_LOG = {
    **dict.fromkeys(("none", "panic", "-2", "-1", "0"), "none"),
    **dict.fromkeys(("error", "warn", "warning", "info", "1", "2", "3"), "warning"),
    **dict.fromkeys(("details", "4"), "info"),
    **dict.fromkeys(("debug", "fine", "finer", "func", "func_all", "all", "5", "6", "7"), "debug"),
}


def _log(value: Any) -> _Converted:
    level = _LOG.get(str(value).lower())
    return (json.dumps(level), "") if level else ("", "not taken over: XLIO and VMA have no such level")


def _strict(value: Any) -> _Converted:
    """Theirs: up to 0: log, and continue with the kernel; above 0, and -2: the call or the program fails."""
    failing = str(value).lower() in ("1", "2", "3", "-2", "exit", "return_error", "throw_exception", "handle_error")
    return ("true", "a socket that cannot be offloaded fails") if failing else ("false", "")


def _verbose(value: Any) -> _Converted:
    return ("true", "") if str(value).lower() in ("1", "true", "on", "enable", "auto") else ("false", "")


def _spin(value: Any) -> _Converted:
    number = _number(value)
    if number is None:
        return "", "not taken over: not a number"
    if number < 0:
        return str(_SPIN_FOREVER_US), 'it polls for ever there: polling = "always" does the same, and takes a core'
    return str(min(number, 0xFFFFFFFF)), ""


def _polling(value: Any) -> _Converted:
    """Theirs: are there interrupts in calls that wait for several sockets?"""
    return ('"always"', "takes a core") if _number(value) == 0 else ('"adaptive"', "")


def _gap(value: Any) -> _Converted:
    """Theirs: how long the card may hold interrupts back."""
    number = _number(value)
    if number is None or number < 0:
        return "", "not taken over: not a number"
    return str(min(number, _GAP_MAX_US)), ""


def _stacks(value: Any) -> _Converted:
    match str(value).lower():
        case "0" | "per_interface":
            return '"process"', ""
        case "20" | "21" | "per_thread":
            return '"thread"', ""
    return "", "not taken over: a queue belongs to the process or to a thread, not to a socket or a core"


_SPECS = {
    **dict.fromkeys(("1", "2", "ultra_latency", "latency", "multi_ring_latency"), "low-latency"),
    **dict.fromkeys(("3", "4", "nginx", "nginx_dpu"), "nginx"),
}


def _profile(value: Any) -> _Converted:
    profile = _SPECS.get(str(value).lower())
    if profile in {one.name for one in PROFILES}:
        return json.dumps(profile), ""
    return (
        "",
        "not taken over: the defaults are meant for this" if profile else "not taken over: there is no similar profile",
    )


_CONVERSIONS = {
    "application_id": _text,
    "rules": _rules,
    "log": _log,
    "strict": _strict,
    "verbose": _verbose,
    "spin_us": _spin,
    "polling": _polling,
    "wakeup_gap_us": _gap,
    "stacks": _stacks,
    "profile": _profile,
}
