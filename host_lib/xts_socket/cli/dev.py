"""`xts dev`: a command with an offload proxy around it, on this machine alone.

The proxy is started first, then the command; at its end the proxy is stopped, and the command's status is ours. Signals
that are sent to us are passed on to the command. It gets Ctrl-C from the terminal itself, and may handle it as it
likes. Ctrl-C while the proxy is starting, or while it waits for closed connections to deliver their data, ends that.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from xts_messages.configuration_file import read_text
from xts_messages.profiles import NAMES

from .. import _once_per_run
from .._dev_proxy import RULES, DevProxy
from .._native import lib
from .._rules import RULES_VARIABLE, RulesError
from . import rules as rules_verb
from .run import RefusedError, add_notices, add_rules, environment_for, notices, program_for

_EPILOG = f"""\
examples:
  xts dev -v -- curl http://127.0.0.1:8000/  curl prints at its end what was offloaded
  xts dev -- python -m http.server 8000      then, in another terminal: curl http://127.0.0.1:8000/
  xts dev --strict -- pytest                 a socket that cannot be offloaded fails, and the reason is printed
  xts dev --no-preload -- python app.py      a program that uses xts_socket or libxts itself

The proxy runs on this machine and uses its network: the command's connections and listeners have the addresses of this
machine, and other programs see no difference. Without --rules (or ${RULES_VARIABLE}) all TCP is offloaded, also on
loopback. It needs no configuration and no privilege, and leaves no files behind. Programs that the command starts use
the same proxy. The proxy stops when the command ends; programs that still run then lose their connections.

exit status: the command's, or 128 and the number of the signal that killed it; 1 when the proxy cannot be started, 2
when rules are wrong or --strict refuses, 126 when the command cannot be started, 127 when it is not found
"""

#: Passed on to the command if another process sends them to us.
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Signals that end us while there is no command.
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TELL_AFTER_S = 1.0
_DRAIN_S = 15.0


class _EndedError(BaseException):
    """Ended by a signal, at a time without a command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "dev",
        help="run a command with an offload proxy of its own, on this machine",
        description="Start an offload proxy on this machine, run a command with its TCP sockets offloaded to it.",
        usage="xts dev [-q | -v] [--rules FILE] [--strict] [--profile NAME] [--tables FILE] [--no-preload]"
        " [--proxy-log] -- COMMAND [ARG ...]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_rules(parser, "all TCP")
    parser.add_argument(
        "--profile",
        metavar="NAME",
        choices=sorted(NAMES),
        help="use the settings of this profile (xts run --list-profiles)",
    )
    parser.add_argument(
        "--tables",
        metavar="FILE",
        help="file with more tables of the proxy's configuration, such as TLS identities and limits",
    )
    parser.add_argument(
        "--no-preload",
        action="store_true",
        help="do not load the interposer: only sockets of xts_socket and libxts are offloaded",
    )
    add_notices(parser)
    parser.add_argument("--proxy-log", action="store_true", help="show the proxy's log lines")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the command and its arguments")
    parser.set_defaults(run=run, endpoint=None)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; its exit status."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        print("xts dev: name a command to run; see xts dev --help", file=sys.stderr)
        return 2
    try:
        environment = _environment(arguments)
        path = program_for(command[0], environment, "dev")
        proxy = DevProxy(_tables(arguments.tables), arguments.proxy_log, arguments.tables or "")
    except RulesError as error:
        rules_verb.print_error(error)
        return 2
    except RefusedError as refused:
        for line in str(refused).splitlines():
            print(f"xts dev: {line}", file=sys.stderr)
        return refused.status
    # the program that started us may have ignored it, and then no child can be waited for
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with _ending_is_raised():
            return _run(path, command, environment, proxy)
    except (_EndedError, KeyboardInterrupt) as ended:
        return 128 + (ended.number if isinstance(ended, _EndedError) else signal.SIGINT)
    except OSError as failure:
        print(f"xts dev: {failure.strerror or failure}", file=sys.stderr)
        return 1


def _tables(file: str | None) -> str:
    """Additional configuration of the proxy. Raises RefusedError."""
    try:
        return read_text(file) if file else ""
    except OSError as failure:
        raise RefusedError(2, f"{file}: {failure.strerror}") from None


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The command's environment, without the proxy's address. Raises RulesError, RefusedError."""
    environment = environment_for(arguments) | notices(arguments)
    if arguments.no_preload:
        environment.pop("LD_PRELOAD")
        if there := os.environ.get("LD_PRELOAD"):
            environment["LD_PRELOAD"] = there
    environment.setdefault(RULES_VARIABLE, str(RULES))
    environment.pop("XTS_QUEUE", None)
    return environment


def _run(path: str, command: list[str], environment: dict[str, str], proxy: DevProxy) -> int:
    begun = time.monotonic()
    try:
        proxy.start()
        if proxy.verbose:
            print(f"xts dev: the proxy serves after {time.monotonic() - begun:.1f} s", file=sys.stderr)
        more = {"XTS_ENDPOINT": proxy.endpoint, "XTS_CONTROL": proxy.control}
        if _once_per_run.make() >= 0:  # stays open while this process lives
            more["XTS_ROOT_PID"] = str(os.getpid())
        status = _await(path, command, environment | more, proxy)
        _drain(proxy)
        return status
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)  # this does not take long, and must not be interrupted
        proxy.kill()


# --- the command -----------------------------------------------------------------------------------------------------


def _await(path: str, command: list[str], environment: dict[str, str], proxy: DevProxy) -> int:
    """From the command's start to its end."""
    watched = {signal.SIGCHLD, *(number for number in _HANDED_ON if signal.getsignal(number) != signal.SIG_IGN)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    ours = os.getpid()

    def in_child() -> None:
        lib.xts_py_end_with_parent(signal.SIGTERM)
        if os.getppid() != ours:
            os._exit(128 + signal.SIGTERM)
        for number in watched:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        sys.stdout.flush()
        try:
            # There are no other threads, so running Python in the child is safe.
            process = subprocess.Popen(
                command,
                executable=path,
                env=environment,
                close_fds=False,
                preexec_fn=in_child,  # noqa: PLW1509
            )
        except OSError as failure:
            print(f"xts dev: {path}: {failure.strerror}", file=sys.stderr)
            return 126
        reported = False
        while process.poll() is None:
            if not reported and (how := proxy.ended()):
                print(f"xts dev: the proxy has ended ({how}); the command goes on without it", file=sys.stderr)
                reported = True
            received = signal.sigwaitinfo(watched)
            if received.si_signo != signal.SIGCHLD and received.si_pid not in (0, process.pid):
                process.send_signal(received.si_signo)  # the command has got a signal of the terminal (0) itself
    finally:
        while signal.sigtimedwait(watched, 0):
            pass  # it was meant for the command, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _drain(proxy: DevProxy) -> None:
    """Waits until all data of the command has been delivered, as the kernel would deliver it."""
    if not proxy.request_stop() or proxy.wait(_TELL_AFTER_S):
        return
    print(
        "xts dev: waiting for the proxy to end; connections may have yet to deliver what was sent on them, "
        "and Ctrl-C cuts them off",
        file=sys.stderr,
    )
    proxy.wait(_DRAIN_S)


# --- signals without a command ---------------------------------------------------------------------------------------


@contextmanager
def _ending_is_raised() -> Iterator[None]:
    def ended(number: int, _: FrameType | None) -> None:
        raise _EndedError(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, ended)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
