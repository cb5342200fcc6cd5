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

from xts_messages.settings.configuration_file import read_text
from xts_messages.settings.file_failure import not_read
from xts_messages.settings.profiles import NAMES

from ... import _once_per_run
from ..._dev_proxy import DevProxy
from ..._native import lib
from ..._reason import Reason
from ..._rules import LOOPBACK_VARIABLE, RULES_VARIABLE, RulesError
from ..device.proxy_side import ask_workers
from . import VERBS
from . import rules as rules_verb
from .run import RefusedError, add_notices, add_rules, environment_for, notices, program_for

_EPILOG = f"""\
examples:
  xts dev -v -- curl http://127.0.0.1:8000/  curl prints at its end what was offloaded
  xts dev -- python -m http.server 8000      then, in another terminal: curl http://127.0.0.1:8000/
  xts dev --strict -- pytest                 a socket that cannot be offloaded fails, and the reason is printed
  xts dev --no-preload -- python app.py      a program that uses xts_socket or libxts itself

The proxy runs on this machine and uses its network: the command's connections and listeners have the addresses of this
machine, and other programs see no difference. All TCP is offloaded, also on loopback.
With --rules (or ${RULES_VARIABLE}) that is the default for what the rules do not mention. It needs no configuration
and no privilege, and leaves no files behind. Programs that the command starts use the same proxy. The proxy stops when
the command ends; programs that still run then lose their connections.

exit status: the command's, or 128 and the number of the signal that killed it; 1 when the proxy cannot be started, 2
when rules are wrong or --strict refuses to start it, 3 when with --strict no socket was offloaded though the rules
offload some that the programs opened (none at all is a success), 126 when the command cannot be started, 127 when it
is not found
"""

#: Passed on to the command if another process sends them to us.
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Signals that end us while there is no command.
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OF_KERNEL = 0x80  # SI_KERNEL
_NOTHING_OFFLOADED = 3  # preload/strict_outcome.h
_TELL_AFTER_S = 1.0
_ANSWER_S = 2.0
_DRAIN_S = 15.0


class _EndedError(BaseException):
    """Ended by a signal, at a time without a command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "dev",
        help=VERBS["dev"],
        description="Start an offload proxy on this machine, run a command with its TCP sockets offloaded to it.",
        usage="xts dev [-q | -v] [--rules FILE] [--strict] [--profile NAME] [--tables FILE] [--no-preload]"
        " [--proxy-log] -- COMMAND [ARG ...]",
        epilog=_EPILOG,
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
            return _run(path, command, environment, proxy, arguments)
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
        raise RefusedError(2, f"--tables: {not_read(file or '', failure)}") from None


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The command's environment, without the proxy's address. Raises RulesError, RefusedError."""
    environment = environment_for(arguments) | notices(arguments)
    if arguments.no_preload:
        environment.pop("LD_PRELOAD")
        if there := os.environ.get("LD_PRELOAD"):
            environment["LD_PRELOAD"] = there
    environment[LOOPBACK_VARIABLE] = "1"
    environment.pop("XTS_QUEUE", None)
    return environment


def _run(
    path: str, command: list[str], environment: dict[str, str], proxy: DevProxy, arguments: argparse.Namespace
) -> int:
    begun = time.monotonic()
    try:
        proxy.start()
        if proxy.verbose:
            print(f"xts dev: the proxy serves after {time.monotonic() - begun:.1f} s", file=sys.stderr)
        more = {"XTS_ENDPOINT": proxy.endpoint, "XTS_CONTROL": proxy.control}
        page = _once_per_run.make()  # stays open while this process lives
        if page >= 0:
            more["XTS_ROOT_PID"] = str(os.getpid())
        status = _await(path, command, environment | more, proxy)
        if page >= 0 and status >= 0:
            status = _strict_status(status, _once_per_run.sockets_of(page), quiet="XTS_QUIET" in environment)
        if (arguments.no_preload or status < 0) and environment.get("XTS_VERBOSE") == "1":
            _tell_figures(proxy.control)
        status = 128 - status if status < 0 else status
        _drain(proxy)
        return status
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)  # this does not take long, and must not be interrupted
        proxy.kill()


def _strict_status(status: int, sockets: _once_per_run.RunSockets, *, quiet: bool) -> int:
    """The exit status after an orderly end: another one if nothing was offloaded that the rules offload. (Programs
    count only with --strict. This one is what preload/strict_outcome.c does under `xts run`.)"""
    if sockets.offloaded or not sockets.refused:
        return status
    if not quiet:
        were = "was" if sockets.refused == 1 else "were"
        print(
            f"xts dev: --strict: no socket was offloaded, and {sockets.refused} that the rules offload {were} refused "
            f"({Reason(sockets.reason).name}): exit status {_NOTHING_OFFLOADED} instead of {status}",
            file=sys.stderr,
        )
    return _NOTHING_OFFLOADED


def _tell_figures(control: str) -> None:
    """What went through the proxy: for a program without the interposer, which writes at an orderly end what was
    offloaded, and for one that a signal has killed."""
    try:
        workers = ask_workers(control, _ANSWER_S)
    except OSError as failure:
        print(f"xts dev: {failure.strerror}", file=sys.stderr)
        return
    made, accepted = (sum(getattr(one, name) for one in workers) for name in ("connects_ok", "accepts"))
    datagrams = sum(one.datagrams_sent for one in workers)
    sent, received = (sum(getattr(one, name) for one in workers) for name in ("sent_bytes", "received_bytes"))
    print(
        f"xts dev: through the proxy: {made} connection{'s'[: made != 1]} made, {accepted} accepted, "
        f"{datagrams} datagram{'s'[: datagrams != 1]} sent; {sent} bytes sent, {received} received",
        file=sys.stderr,
    )


# --- the command -----------------------------------------------------------------------------------------------------


def _await(path: str, command: list[str], environment: dict[str, str], proxy: DevProxy) -> int:
    """From the command's start to its end: its status, or minus the number of the signal that killed it."""
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
            if received.si_signo != signal.SIGCHLD and not _has_got(process.pid, received):
                process.send_signal(received.si_signo)
    finally:
        while signal.sigtimedwait(watched, 0):
            pass  # it was meant for the command, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode


def _has_got(command: int, received: signal.struct_siginfo) -> bool:
    """Whether the command has sent this signal, or has got it, too: as those of its terminal's keys. When the terminal
    goes away, only the leader of its session is told. (0 is also a sender outside of a container.)"""
    if received.si_code != _OF_KERNEL:
        return received.si_pid == command
    return received.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()


def _drain(proxy: DevProxy) -> None:
    """Waits until all data of the command has been delivered, as the kernel would deliver it. If that takes long, it
    says what it waits for, unless there is nothing."""
    if not proxy.request_stop() or proxy.wait(_TELL_AFTER_S):
        return
    if waits_for := _undelivered(proxy.control):
        print(f"xts dev: waiting for {waits_for}; Ctrl-C cuts them off", file=sys.stderr)
    proxy.wait(_DRAIN_S)


def _undelivered(control: str) -> str:
    """What the proxy has yet to deliver; empty: nothing, or it does not answer."""
    try:
        workers = ask_workers(control, _ANSWER_S)
    except OSError:
        return ""  # it is about to end, or hangs: then nobody knows
    connections = sum(worker.connections + worker.parked_connections for worker in workers)
    datagrams = sum(worker.datagrams_waiting for worker in workers)
    return " and ".join(
        text
        for count, text in (
            (connections, f"{connections} connection{'s'[: connections != 1]} to finish sending"),
            (datagrams, f"{datagrams} datagram{'s'[: datagrams != 1]} to leave"),
        )
        if count
    )


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
