"""`xts rules`: is a rule file correct, and which of its lines decides about a socket (host_lib/RULES.md)."""

from __future__ import annotations

import argparse
import json
import sys
from ipaddress import ip_address
from typing import Any

from xts_messages.settings.configuration_file import read_bytes
from xts_messages.settings.file_failure import not_read
from xts_messages.terminal.text_table import print_table

from ..._rules import Role, Rules, RulesError, Verdict, loopback_of_environment, offload_loopback
from ..options import add_which
from ..processes import rules_reload
from . import VERBS

_EXAMPLES = """\
examples:
  xts rules check /etc/xts/rules.conf
  xts rules explain /etc/xts/rules.conf --app nginx --role tcp_client --peer [2001:db8::1]:443
  xts rules explain --app curl --role tcp_client --peer 127.0.0.1:80      without a file: the default rules
  xts rules reload --pid 4711       a process reads its file again, for the sockets that it makes from now on

exit status: 0, 1 when the file is wrong, 2 for wrong usage
"""

_EXPLAIN = """\
example:
  xts rules explain /etc/xts/rules.conf --app nginx --role tcp_server --local 0.0.0.0:443

An address that is not given is not known, and only rules with * for it match.
"""

_LISTENING = (Role.TCP_SERVER, Role.UDP_RECEIVER)


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "rules",
        help=VERBS["rules"],
        description="Transport rules: which sockets of which program are offloaded.",
        epilog=_EXAMPLES,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = _action(actions, "check", "check a file for mistakes", "example:\n  xts rules check xts.conf", _check)
    check.add_argument("file", metavar="FILE")
    explain = _action(actions, "explain", "show which rule decides about a socket, and why", _EXPLAIN, _explain)
    explain.add_argument("file", metavar="FILE", nargs="?", help="default: the rules without a file")
    explain.add_argument("--app", required=True, metavar="NAME", help="the program's short name")
    explain.add_argument("--id", help="the program's id (XTS_APPLICATION_ID; default: none)")
    explain.add_argument("--user", metavar="NAME", help="who runs it, by name or number (default: nobody known)")
    explain.add_argument("--cgroup", metavar="PATH", help="its cgroup, as in /proc/PID/cgroup (default: none)")
    explain.add_argument("--role", required=True, choices=[role.name.lower() for role in Role])
    explain.add_argument("--local", type=parse_address, metavar="ADDRESS:PORT", help="where it is bound")
    explain.add_argument("--peer", type=parse_address, metavar="ADDRESS:PORT", help="the other end")
    explain.add_argument(
        "--dev",
        action="store_true",
        help="as under xts dev, where loopback is offloaded unless the rules say otherwise (default: as $XTS_LOOPBACK)",
    )
    reload = _action(actions, "reload", "make running processes read their rules again", _RELOAD, rules_reload.run)
    add_which(reload, "this process", "each process that this user may access")


_RELOAD = """\
example:
  xts rules reload --all      each process that this user may access

The files are checked first: where one is wrong, its process is not asked. Sockets that have been decided stay as they
are. A process reads its rules with the next socket that it makes, binds or connects; this waits a second for it.

exit status: 0; 1 when a file is wrong, or a process cannot be asked or could not read its file; 2 when it is not said
which processes are meant
"""


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


def parse_address(text: str) -> tuple[str, int]:
    """`192.0.2.1:80` or `[2001:db8::1]:443`."""
    host, _, port = text.rpartition(":")
    try:
        if host.startswith("[") and host.endswith("]"):
            address = ip_address(host[1:-1])
            if address.version == 6 and port.isdecimal() and int(port) <= 65535:
                return str(address), int(port)
        elif ":" not in host and port.isdecimal() and int(port) <= 65535:
            return str(ip_address(host)), int(port)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not like 192.0.2.1:80 or [2001:db8::1]:443")


def format_address(address: tuple[str, int] | None) -> str | None:
    """The inverse; None stays None."""
    if address is None:
        return None
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def read(path: str) -> Rules:
    """The rules of a file. Raises RulesError for faults in it; OSError, with the path in its text."""
    try:
        return Rules.read(path)
    except OSError as failure:
        raise OSError(failure.errno, not_read(path, failure)) from None


def print_error(error: RulesError) -> None:
    """Prints the faults on standard error, each with its line and position."""
    lines = _lines(error.path)
    for mistake in error.mistakes:
        print(error.where(mistake), file=sys.stderr)
        if mistake.line <= len(lines):
            line = lines[mistake.line - 1]
            before = "".join("\t" if char == "\t" else " " for char in line[: mistake.column - 1])
            print(f"    {_shown(line)}\n    {before}^", file=sys.stderr)
    if error.count > len(error.mistakes):
        print(f"{error.path}: and {error.count - len(error.mistakes)} more", file=sys.stderr)


def _check(arguments: argparse.Namespace) -> int:
    try:
        notes = read(arguments.file).notes()
    except RulesError as error:
        return _wrong(arguments, error)
    if arguments.json:
        listed = [{"line": line, "text": text} for line, text in notes]
        print(json.dumps({"file": arguments.file, "valid": True, "notes": listed}, indent=2))
        return 0
    count = sum(line.split()[:1] == ["use"] for line in _lines(arguments.file))
    print(f"{arguments.file} is right: {count} rule{'s' * (count != 1)}")
    for line, text in notes:
        print(f"{arguments.file}:{line}: note: {text}")
    return 0


def _wrong(arguments: argparse.Namespace, error: RulesError) -> int:
    if arguments.json:
        errors = [mistake._asdict() for mistake in error.mistakes]
        listed = {"file": error.path, "valid": False, "mistakes": error.count, "errors": errors}
        print(json.dumps(listed, indent=2))
    else:
        print_error(error)
    return 1


def _explain(arguments: argparse.Namespace) -> int:
    role = Role[arguments.role.upper()]
    needed = "local" if role in _LISTENING else "peer"
    if getattr(arguments, needed) is None:
        print(
            f"xts rules explain: --role {arguments.role} is decided by the {needed} address: give --{needed}",
            file=sys.stderr,
        )
        return 2
    try:
        rules = read(arguments.file) if arguments.file else Rules.default()
    except RulesError as error:
        return _wrong(arguments, error)
    program = (arguments.app, arguments.id, arguments.user, arguments.cgroup)
    group = rules.group(*program)
    offload_loopback(arguments.dev or loopback_of_environment())
    try:
        verdict = group.ask(role, arguments.local, arguments.peer)
        steps = [*rules.tried_groups(*program), *group.tried(role, arguments.local, arguments.peer)]
    finally:
        offload_loopback(loopback_of_environment())
    lines = _lines(arguments.file) if arguments.file else []
    tried = [(step.line, _statement(lines, step.line), step.mismatch) for step in steps]
    if arguments.json:
        _print_json(arguments, verdict, lines, tried)
    else:
        _print(arguments, verdict, lines, tried)
    return 0


_Tried = list[tuple[int, str, str | None]]


def _print_json(arguments: argparse.Namespace, verdict: Verdict, lines: list[str], tried: _Tried) -> None:
    asked = {"file": arguments.file, "program": arguments.app, "id": arguments.id, "role": arguments.role}
    ends = {"local": format_address(arguments.local), "peer": format_address(arguments.peer)}
    decided = {**verdict._asdict(), "statement": _statement(lines, verdict.line) if verdict.line else None}
    looked_at = [{"line": line, "statement": text, "mismatch": mismatch} for line, text, mismatch in tried]
    print(json.dumps({**asked, **ends, **decided, "tried": looked_at}, indent=2))


def _print(arguments: argparse.Namespace, verdict: Verdict, lines: list[str], tried: _Tried) -> None:
    where = "offloaded" if verdict.offload else "kernel"
    via = f" through {verdict.endpoint}" if verdict.endpoint else ""
    by = f"{arguments.file}:{verdict.line}: {_statement(lines, verdict.line)}" if verdict.line else "the default"
    print(f"{where}{via}, by {by}\n{verdict.why}")
    if tried:
        rows = [(str(line or ""), text, mismatch or "fits") for line, text, mismatch in tried]
        print_table(("Line", "Looked at", "Answer"), rows, ("Line",))


def _lines(path: str) -> list[str]:
    """A file's lines as the parser counts them; one byte is one character."""
    try:
        return read_bytes(path).decode("latin-1").split("\n")
    except OSError:
        return []


def _statement(lines: list[str], line: int) -> str:
    if not 0 < line <= len(lines):
        return "rules before any application-id"
    return " ".join(_shown(lines[line - 1].partition(" #")[0]).split())


def _shown(text: str) -> str:
    return "".join(char if char == "\t" or " " <= char <= "~" else "?" for char in text.rstrip("\r"))
