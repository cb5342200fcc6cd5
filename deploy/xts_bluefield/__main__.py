"""`xts-bluefield`: sets up a BlueField, or the host it is in, and takes it back."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine, add_common
from xts_messages.terminal.standard_output import ends_with_reader

from . import report
from .applying import Outcome, apply, differences, undo
from .journal import DEFAULT, Journal
from .look import View
from .machine import Machine, ThisMachine, ToolMissingError
from .model import Plan
from .planning import make
from .simulated import card_for
from .wanted import WantedError, load

#: Exit statuses besides 0.
DIFFERS = FAILED = 1
BAD_FILE = 2
BY_HAND = 3
SIMULATED = "this is the plan for a simulated card, with its defaults: nothing of this machine was looked at"

EXAMPLE = """\
examples:
  xts-bluefield plan /etc/xts/xts-bluefield.toml            look, and change nothing
  xts-bluefield plan --simulated deploy/xts-bluefield.toml  the same without a card, to see what it would do
  xts-bluefield apply /etc/xts/xts-bluefield.toml           ask, then do it
  xts-bluefield apply --yes --expect 0123456789abcdef /etc/xts/xts-bluefield.toml
  xts-bluefield check /etc/xts/xts-bluefield.toml           exit status 1 when something differs
  xts-bluefield undo                                        everything as it was before the first apply

exit status: 0: done, or nothing to do. 1: something differs (check), or it failed; the message says how to go on. 2:
the options or the file are wrong; nothing was done. 3: a person has to do something (a power cycle, a reboot) before
the same command goes on.

Needs root, except for plan and check where devlink, mlxconfig and Open vSwitch answer everybody.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="xts-bluefield",
        description="Sets up a BlueField for offload, or the host it is in, as a file says: the card's mode, scalable "
        "functions, steering of messages, queues, memory, CPUs, units and firewall. The file says which of the two "
        "machines this is (role).",
        epilog=EXAMPLE,
    )
    add_common(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=text, epilog=f"example:\n  {example}")

    found = verb(
        "plan",
        "print every step without doing it: what, why, how, its source, and how it is undone",
        "xts-bluefield plan FILE",
    )
    found.add_argument("--json", action="store_true", help="print JSON instead")
    found.add_argument(
        "--simulated",
        action="store_true",
        help="plan for a simulated card that has what the file names: needs no card, no tools and no root",
    )
    _add_file(found)
    found = verb(
        "apply",
        "make the changes of the plan, and keep a journal of the earlier values",
        "xts-bluefield apply --yes FILE",
    )
    found.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    found.add_argument(
        "--expect",
        metavar="PLAN",
        default="",
        help="stop unless this is still the plan's identifier, as printed by plan",
    )
    _add_journal(found)
    _add_file(found)
    found = verb("check", "list what differs from the file; exit status 1 if anything does", "xts-bluefield check FILE")
    found.add_argument("--json", action="store_true", help="print JSON instead")
    _add_file(found)
    found = verb("undo", "restore everything in the journal, the latest change first", "xts-bluefield undo --yes")
    found.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    found.add_argument(
        "--force", action="store_true", help="also restore settings that somebody else has changed since"
    )
    _add_journal(found)
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the wanted state (TOML)")


def _add_journal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--journal", metavar="PATH", default=DEFAULT, help=f"file with the journal (default {DEFAULT})")


def _show(line: str) -> None:
    print(line, flush=True)


def _agreed(question: str, yes: bool) -> bool:
    """Somebody at a terminal has agreed, or --yes was given."""
    if yes:
        return True
    if not sys.stdin.isatty():
        print("xts-bluefield: nobody can be asked: standard input is no terminal; give --yes", file=sys.stderr)
        return False
    return input(f"{question} [yes/no] ").strip() == "yes"


def _plan(options: argparse.Namespace, machine: Machine) -> int:
    wanted = load(Path(options.file))
    view = View(card_for(wanted) if options.simulated else machine)
    try:
        plan = make(wanted, view)
    except ToolMissingError as error:
        hint = f"to see a plan without a card: xts-bluefield plan --simulated {options.file}"
        raise ToolMissingError(error.errno, f"{error.strerror}; {hint}") from None
    if options.simulated:
        plan = Plan(plan.steps, (SIMULATED, *plan.notes))
    if options.json:
        _show(report.as_json(plan.steps, plan.notes))
    else:
        for line in report.plan_lines(plan, view, terminal.columns()):
            _show(line)
    for step in plan.problems:
        print(f"xts-bluefield: {step.setting} is {step.found!r}: {step.why}; apply will refuse", file=sys.stderr)
    return FAILED if plan.problems else 0


def _apply(options: argparse.Namespace, machine: Machine) -> int:
    wanted = load(Path(options.file))
    if not options.yes:
        view = View(machine)
        plan = make(wanted, view)
        for line in report.plan_lines(plan, view, terminal.columns()):
            _show(line)
        if not plan.steps:
            return 0
    if not _agreed("Do this?", options.yes):
        return FAILED
    with Journal.opened(Path(options.journal)) as journal:
        return _ended(apply(wanted, machine, journal, _show, options.expect), "changed")


def _check(options: argparse.Namespace, machine: Machine) -> int:
    steps = differences(load(Path(options.file)), machine)
    if options.json:
        _show(report.as_json(steps))
    else:
        view = View(machine)
        for line in report.differing_lines(steps, view):
            _show(line)
        if not steps:
            _show("Everything is as the file wants it.")
    return DIFFERS if steps else 0


def _undo(options: argparse.Namespace, machine: Machine) -> int:
    with Journal.opened(Path(options.journal)) as journal:
        if not journal.entries:
            _show(f"Nothing to undo: {journal.path} has no entries.")
            return 0
        for entry in reversed(journal.entries):
            _show(f"{entry.setting}: back to {report.value_text(entry.original)}")
        if not _agreed("Undo this?", options.yes):
            return FAILED
        return _ended(undo(machine, journal, _show, options.force), "set back")


def _ended(outcome: Outcome, what: str) -> int:
    _show(f"{outcome.done} settings {what}.")
    for sentence in outcome.by_hand:
        _show(f"Now {sentence}.")
    return BY_HAND if outcome.by_hand else 0


_VERBS = {"plan": _plan, "apply": _apply, "check": _check, "undo": _undo}


@ends_with_reader
def main(argv: list[str] | None = None, machine: Machine | None = None) -> int:
    """The command; `machine` is for tests."""
    options = make_parser().parse_args(argv)
    try:
        return _VERBS[options.verb](options, machine or ThisMachine())
    except WantedError as error:
        print("\n".join(f"xts-bluefield: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return BAD_FILE
    except PermissionError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"xts-bluefield: {where}{error.strerror}; run it as root (you are user {os.getuid()})", file=sys.stderr)
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"xts-bluefield: {where}{error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(
            "xts-bluefield: interrupted; the journal has what was done: apply goes on, undo goes back", file=sys.stderr
        )
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
