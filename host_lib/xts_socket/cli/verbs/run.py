"""`xts run`: runs an unmodified program with its sockets offloaded.

The rules and the program's file are checked first; then this process executes the program: with the same process id,
its exit status, its signals.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from xts_messages.settings.file_failure import not_read
from xts_messages.settings.profiles import NAMES, PROFILES
from xts_messages.terminal.text_table import print_table

from ..._environment import DEFAULT_ENDPOINT as ENDPOINT_DEFAULT
from ..._environment import setting
from ..._rules import LOOPBACK_VARIABLE, RULES_VARIABLE, Rules, RulesError
from ..processes.executable import find, look_at, preload_library, preload_value
from . import VERBS, env
from . import rules as rules_verb

_EPILOG = """\
examples:
  xts run -- curl http://198.18.0.2/
  xts run --rules web.conf --strict -- nginx -g 'daemon off;'
  xts run --profile low-latency -- redis-server
  xts run -v -- curl http://198.18.0.2/   the program prints at its end what was offloaded, and why the rest was not
  xts status --processes                  the same for programs that are running

Variables of the environment, such as XTS_SPIN_US, take precedence over the profile, and both over the file of settings
(see xts config). Programs that this program starts are offloaded, too, if they get its environment (sudo and env -i
clear it). The library reads the environment once, when a program starts. If the program clears it later, that affects
only the programs it starts after that.

exit status: the program's; 2 when rules or settings are wrong or --strict refuses to start it; 3 when with --strict no
socket was offloaded, though the rules offload some that the program and its children opened (none at all is a success);
126 when the program cannot be started, 127 when it is not found
"""


class RefusedError(Exception):
    """The reason why a program is not started: a message and an exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, *self.args), self.__dict__


def add_rules(parser: argparse.ArgumentParser, default: str) -> None:
    """The options that say which sockets of a program are offloaded; `default`: what holds without rules."""
    parser.add_argument("--rules", metavar="FILE", help=f"transport rules (default: ${RULES_VARIABLE}, else {default})")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="a socket that cannot be offloaded fails, instead of being left to the kernel; exit status 3 if the rules "
        "offload sockets and no socket was offloaded",
    )


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "run",
        help=VERBS["run"],
        description="Run an unmodified program, with its sockets offloaded as the transport rules say.",
        usage="xts run [-q | -v] [--rules FILE] [--strict] [--profile NAME] [--endpoint PATH] -- PROGRAM [ARG ...]",
        epilog=_EPILOG,
    )
    add_rules(parser, "none")
    add_notices(parser)
    parser.add_argument(
        "--profile", metavar="NAME", choices=sorted(NAMES), help="use the settings of this profile (--list-profiles)"
    )
    parser.add_argument("--list-profiles", action="store_true", help="print the profiles and what they set, and exit")
    parser.add_argument("--json", action="store_true", help="print --list-profiles as JSON")
    parser.add_argument(
        "--endpoint",
        metavar="PATH",
        help=f"socket of the agent or proxy (default: $XTS_ENDPOINT, else {ENDPOINT_DEFAULT})",
    )
    parser.add_argument("command", metavar="PROGRAM", nargs=argparse.REMAINDER, help="the program and its arguments")
    parser.set_defaults(run=run)


def add_notices(parser: argparse.ArgumentParser) -> None:
    """The options for what the library writes on standard error."""
    parser.add_argument("-q", "--quiet", action="store_true", help="the library writes nothing to standard error")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="at its end each program writes what was offloaded, what was not and why, bytes and CPU time; for "
        "one that is killed, and with --no-preload, xts dev writes what went through the proxy",
    )


def run(arguments: argparse.Namespace) -> int:
    """Executes the program; returns only if that fails, with the exit status."""
    if arguments.list_profiles:
        _list_profiles(arguments.json)
        return 0
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        print("xts run: name a program to run; see xts run --help", file=sys.stderr)
        return 2
    try:
        environment = environment_for(arguments) | _of_a_tree() | notices(arguments)
        path = program_for(command[0], environment)
    except RulesError as error:
        rules_verb.print_error(error)
        return 2
    except RefusedError as refused:
        for line in str(refused).splitlines():
            print(f"xts run: {line}", file=sys.stderr)
        return refused.status
    return _become(path, command, environment)


def _of_a_tree() -> dict[str, str]:
    """This process becomes the program, and the first of those that share a record of the notices already written."""
    return {"XTS_ROOT_PID": str(os.getpid())}


def notices(arguments: argparse.Namespace) -> dict[str, str]:
    """Variables for what the program shall write on standard error."""
    return {
        **({"XTS_QUIET": "1"} if arguments.quiet else {}),
        **({"XTS_VERBOSE": "1"} if arguments.verbose else {}),
    }


def environment_for(arguments: argparse.Namespace) -> dict[str, str]:
    """The program's environment. Raises RulesError, RefusedError."""
    environment = _as_started()
    rules = arguments.rules or environment.get(RULES_VARIABLE) or setting(RULES_VARIABLE)
    if rules:
        try:
            Rules.read(rules)
        except OSError as failure:
            raise RefusedError(2, f"rules: {not_read(rules, failure)}") from None
        # absolute, since the program may change its directory
        environment[RULES_VARIABLE] = str(Path(rules).absolute())
    if arguments.strict:
        environment["XTS_STRICT"] = "1"
    if arguments.endpoint:
        environment.pop(LOOPBACK_VARIABLE, None)  # it is about the endpoint that the environment names
        environment["XTS_ENDPOINT"] = str(Path(arguments.endpoint).absolute())
    if arguments.profile:
        environment["XTS_PROFILE"] = arguments.profile
    if wrong := [*env.file_faults(), *env.faults(environment), *env.unknown(environment)]:
        raise RefusedError(2, "\n".join(wrong))
    library = preload_library()
    if not library.exists():
        raise RefusedError(2, f"{library} is not there: install the package again; nothing was started")
    try:
        environment["LD_PRELOAD"] = preload_value(environment, str(library))
    except OSError as failure:
        raise RefusedError(2, str(failure)) from None
    return environment


def _as_started() -> dict[str, str]:
    """The environment without the variable that Python itself has added: LC_CTYPE, in the C locale (PEP 538)."""
    environment = dict(os.environ)
    if b"LC_CTYPE" not in {entry.partition(b"=")[0] for entry in Path("/proc/self/environ").read_bytes().split(b"\0")}:
        environment.pop("LC_CTYPE", None)
    return environment


def program_for(name: str, environment: dict[str, str], verb: str = "run") -> str:
    """The file to start in this environment; prints what will not be offloaded. If the interposer would do harm, it is
    removed from the environment. Raises RefusedError."""
    strict = environment.get("XTS_STRICT") == "1"
    try:
        program = look_at(find(name))
    except FileNotFoundError as failure:
        raise RefusedError(127, str(failure)) from None
    except OSError as failure:
        raise RefusedError(126, str(failure)) from None
    if program.obstacle:
        what = program.path if program.runs == program.path else f"{program.path}, that is {program.runs},"
        fate = "refused, for --strict" if strict else "its sockets stay with the kernel"
        message = f"{what} {program.obstacle}: {fate}"
        if strict:
            raise RefusedError(2, message)
        print(f"xts {verb}: {message}", file=sys.stderr)
    if program.sandboxed:
        environment.pop("LD_PRELOAD", None)
        if "LD_PRELOAD" in os.environ:
            environment["LD_PRELOAD"] = os.environ["LD_PRELOAD"]
    return program.path


def _become(path: str, command: list[str], environment: dict[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and a program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, command, environment)
    except OSError as failure:
        print(f"xts run: {path}: {failure.strerror}", file=sys.stderr)
    return 126


def _list_profiles(as_json: bool) -> None:
    if as_json:
        listed = [{"name": one.name, "text": one.meaning, "sets": one.sets} for one in PROFILES]
        print(json.dumps({"profiles": listed}, indent=2))
        return
    rows = [(one.name, " ".join(f"{key}={value}" for key, value in one.sets.items()), one.meaning) for one in PROFILES]
    print_table(("Profile", "Sets", "Meaning"), rows)
