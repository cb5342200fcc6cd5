"""`xts-proxy`: runs the offload proxy, checks and explains its configuration, shows what it is doing."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xts_messages.attaching import attach_token
from xts_messages.metrics.metric_list import add_list_metrics, list_asked, listing
from xts_messages.services import exit_status
from xts_messages.services.exit_status import FAILED, MISTAKE
from xts_messages.services.log_lines import have_standard_descriptors
from xts_messages.services.served_sockets import add_unserved, check_unserved, in_use, server_of
from xts_messages.services.service_manager import manager
from xts_messages.settings.config_mistakes import ConfigError, Mistake
from xts_messages.settings.configuration_file import read_text
from xts_messages.settings.toml_positions import dotted, locate
from xts_messages.terminal.command_line import CommandLine, add_common, add_watch, watch
from xts_messages.terminal.standard_output import ends_with_reader

from xts_proxy import WIPES_MEMORY
from xts_proxy.config import config_tls
from xts_proxy.config.config import RELOADABLE, Config, Proxy, load, read, render
from xts_proxy.config.config_tenant import DEFAULT

if TYPE_CHECKING:
    from xts_proxy.upgrade.taking import Taking, Teller

EXAMPLES = f"""\
examples:
  xts-proxy --config /etc/xts/xts-proxy.toml
  xts-proxy --check /etc/xts/xts-proxy.toml
  xts-proxy --config /etc/xts/xts-proxy.toml --explain connect 198.18.0.2:80 --queue 3
  xts-proxy --config /etc/xts/xts-proxy.toml --explain identity www --queue 3
  xts-proxy status --connections
  xts-proxy status --watch 2
  xts-proxy nic
  xts-proxy --config /etc/xts/xts-proxy.toml reload
  xts-proxy --config /etc/xts/xts-proxy.toml upgrade
  kill -HUP PID     reads the file again: all tables except [proxy], and of [proxy]
                    {", ".join(sorted(RELOADABLE))}
  kill -TERM PID    lets connections end for drain_timeout_s, then stops; a second time: stops at once

{exit_status.EPILOG}"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = CommandLine(
        prog="xts-proxy",
        description="The offload proxy: makes the TCP connections and UDP sockets of hosts, which send it "
        "XDP-Transport messages.",
        epilog=EXAMPLES,
    )
    add_common(result)
    result.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with the configuration (default: none, built-in defaults)",
    )
    result.add_argument(
        "--check", type=Path, metavar="FILE", help="check this file, print the values in effect, and exit"
    )
    result.add_argument("--quiet", action="store_true", help="with --check: print only mistakes")
    add_unserved(result)
    add_list_metrics(result)
    result.add_argument(
        "--explain",
        nargs=2,
        metavar=("ACTION", "WHAT"),
        help="explain a decision and exit. ACTION connect or listen, WHAT an address and port: say which policy "
        "rule decides. ACTION identity or trust, WHAT a name: say whether the queue may use it",
    )
    result.add_argument(
        "--tenant", default=DEFAULT, metavar="NAME", help=f"with --explain: the tenant that asks (default: {DEFAULT})"
    )
    result.add_argument(
        "--queue",
        type=int,
        default=0,
        metavar="N",
        help="with --explain: the queue that the request comes from (default: 0)",
    )
    result.add_argument("--ready-fd", type=int, metavar="N", help="write a line to this file descriptor when ready")
    result.add_argument(
        "--until-fd",
        type=int,
        metavar="N",
        help="stop, as on SIGTERM, when this file descriptor is readable or hung up, such as a pidfd or a pipe of "
        "the process that started the proxy",
    )
    result.add_argument(
        "--open-queues",
        action="store_true",
        help="open the queues of the configured interface, store them in systemd's file descriptor store, and "
        "exit. For ExecStartPre=+ in the unit: the service then needs no privilege to open them",
    )
    result.add_argument(
        "--detach",
        action="store_true",
        help="take the XDP program of a proxy that has ended off the configured interface, and exit. It stays there "
        "when a proxy ends, so that no frame is lost until the next one starts",
    )
    result.add_argument(
        "--make-dir",
        type=Path,
        metavar="DIR",
        help="make this directory, and below it the directory of proxy.endpoint, and remove them at the end. Only the "
        "proxy's user may enter them; if that is root, everybody may enter them, but not list them",
    )
    commands = result.add_subparsers(dest="command", metavar="COMMAND")
    status = commands.add_parser(
        "status",
        help="show what a running proxy is doing",
        description="Shows workers, channels and, if asked, connections of a running proxy.",
        epilog="example:\n  xts-proxy status --connections --control /run/xts/proxy.sock",
    )
    status.add_argument(
        "--control",
        default=os.environ.get("XTS_CONTROL") or Proxy().control,
        metavar="PATH",
        help=f"the proxy's control socket (default: $XTS_CONTROL, else {Proxy().control})",
    )
    add_watch(status)
    status.add_argument("--connections", action="store_true", help="also list connections and listeners")
    status.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show every figure: credits, frames, memory by purpose, wake-ups, and the numbers of sockets",
    )
    status.add_argument("--json", action="store_true", help="print everything as JSON")
    nic = commands.add_parser(
        "nic",
        help="show what network interfaces can do for the proxy, and what is in force",
        description="Shows what each interface of this machine can do, by which back end (a card through verbs, the "
        "kernel, XDP, the proxy's software), how far, and why not. Then the rates, marks and rules of steering that "
        "are in force in the running proxy, and who asked for each.",
        epilog="example:\n  xts-proxy nic --interface eth0",
    )
    nic.add_argument(
        "--interface", action="append", default=[], metavar="NAME", help="only this one; may be given several times"
    )
    nic.add_argument(
        "--control",
        default=os.environ.get("XTS_CONTROL") or Proxy().control,
        metavar="PATH",
        help=f"the proxy's control socket (default: $XTS_CONTROL, else {Proxy().control})",
    )
    nic.add_argument("--json", action="store_true", help="print everything as JSON")
    reload = commands.add_parser(
        "reload",
        help="have a running proxy read its file again, and wait for the outcome",
        description="Has a running proxy read its file again, as SIGHUP does, and waits until that is done. It fails, "
        "with a line for each reason, when the configuration in force stays: for a mistake in the file, or a key that "
        "needs a restart. `systemctl reload xts-proxy` does this.",
        epilog="example:\n  xts-proxy --config /etc/xts/xts-proxy.toml reload",
    )
    _add_control(reload)
    upgrade = commands.add_parser(
        "upgrade",
        help="take the place of a running proxy, whose connections go on",
        description="Starts a proxy that takes over the processes, connections and listeners of the one that runs, "
        "and goes on as that proxy. Where the running one is a service of systemd, the new one is started in its unit, "
        "and this command returns when it has everything. Only root may. What cannot move (connections with TLS keys "
        "of their programs, or with TLS that OpenSSL or the kernel carries) is served by the proxy before for "
        "drain_timeout_s at most, and is reset then.",
        epilog="example:\n  xts-proxy --config /etc/xts/xts-proxy.toml upgrade",
    )
    _add_control(upgrade)
    upgrade.add_argument(
        "--ready-fd",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="write a line to this file descriptor when everything has moved",
    )
    upgrade.add_argument(
        "--pod",
        action="store_true",
        help="in a pod, next to a pod with the running proxy: start where none runs, and when another one has taken "
        "over, wait until the pod is stopped. The file of proxy.upgrade_key has to be the same for both",
    )
    upgrade.add_argument(
        "--ready-file", type=Path, metavar="PATH", help="write a line to this file when everything has moved"
    )
    for name in ("--granted-fd", "--teller-fd"):  # what successor.py hands to it
        upgrade.add_argument(name, type=int, help=argparse.SUPPRESS)
    return result


def _add_control(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--control",
        default=os.environ.get("XTS_CONTROL") or None,
        metavar="PATH",
        help="the running proxy's control socket (default: $XTS_CONTROL, else that of the configuration)",
    )


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """Returns 0, or one of exit_status. Errors go to standard error."""
    have_standard_descriptors()
    command_line = parser()
    options = command_line.parse_args(arguments)
    if list_asked(command_line, options):
        from xts_proxy.metrics import metric_catalogue  # this imports prometheus_client

        print(listing(metric_catalogue.PARTS, options))
        return 0
    if os.getpid() == 1:  # as process 1 of a container, signals without a handler would do nothing
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return _act(options)
    except ConfigError as error:
        if options.open_queues and manager():
            return 0  # the service, which systemd starts next, ends with these mistakes
        for mistake in error.mistakes:
            print(mistake, file=sys.stderr)
        if options.check is None and options.command != "reload":  # which are no start of the service
            exit_status.tell(str(error.mistakes[0]))
        return MISTAKE
    except OSError as error:
        return _failed(error, FAILED)
    except KeyboardInterrupt:
        return 130


def _act(options: argparse.Namespace) -> int:
    """Does what the options say; returns the exit status. ConfigError, OSError."""
    if options.unserved is not None:
        return check_unserved(options.unserved, "xts-proxy")
    if options.command == "status":
        return _status(options)
    if options.command == "nic":
        return _nic(options)
    if options.check is not None:
        return _check(options.check, options.quiet)
    config = load(options.config) if options.config else Config()
    if options.command == "reload":
        return _reload(config, options)
    acts = (
        (options.command == "upgrade", _upgrade),
        (options.explain, _explain),
        (options.open_queues, _open_queues),
        (options.detach, _detach),
    )
    act = next((act for given, act in acts if given), _run)
    return act(config, options)


def _failed(error: OSError, status: int) -> int:
    reason = error.strerror or str(error)
    print(f"xts-proxy: {reason}", file=sys.stderr)
    exit_status.tell(reason)
    return status


def _check(path: Path, quiet: bool) -> int:
    from xts_proxy.tenants import guarantees

    config, given = read(path)
    unread = [line for name in ("token_key", "upgrade_key") for line in _key_unread(path, config, name)]
    if quiet:
        return 0
    for warning in [*guarantees.warnings(config, guarantees.this_machine(config)), *unread]:
        print(f"{path}: warning: {warning}", file=sys.stderr)
    for where, text in _policy_notes(path, config):
        print(f"{where}: note: {text}", file=sys.stderr)
    print("ok\n")
    print(render(config, given), end="")
    return 0


def _key_unread(path: Path, config: Config, name: str) -> list[str]:
    """A warning if the key that this key of [proxy] names may not be read here. ConfigError: it is no such key."""
    try:
        if file := getattr(config.proxy, name):
            attach_token.load_key(file)
    except OSError as error:
        if isinstance(error, PermissionError) and error.filename is not None:
            return [f"proxy.{name}: not checked, for only its owner may read it"]
        place = locate(read_text(path)).get(("proxy", name))
        position, problem = place.value if place else None, error.strerror or str(error)
        raise ConfigError([Mistake(str(path), position, f"proxy.{name}", problem)]) from error
    return []


def _policy_notes(path: Path, config: Config) -> Iterator[tuple[str, str]]:
    """Rules that decide nothing, with their places in the file."""
    from xts_proxy.config.policy_notes import notes

    places = locate(read_text(path))
    for key, text in notes(config):
        position = places[key].key
        yield f"{path}:{position.line}:{position.column}", f"{dotted(key)}: {text}"


def _explain(config: Config, options: argparse.Namespace) -> int:
    from xts_proxy.config import policy_explained
    from xts_proxy.workers import policy_table

    action, text = options.explain
    if action in ("identity", "trust"):
        print(config_tls.explain(config.tls, action, text, options.tenant, options.queue))
        return 0
    if action not in ("connect", "listen"):
        parser().error(f"--explain: {action!r} is not an action; use connect, listen, identity or trust")
    try:
        address, port = policy_explained.parse_endpoint(text)
    except ValueError as error:
        parser().error(f"--explain: {error}")
    wanted = policy_table.Action[action.upper()]
    who = policy_explained.Who(options.tenant, options.queue, len(config.tenant))
    decision = policy_explained.decide(config.policy, wanted, who, address, port)
    verdict = "allow" if decision.allow else "deny"
    if decision.rule is None and policy_explained.is_own(wanted, address):
        print(f'{verdict}: {address} is the device\'s own, loopback or link-local; no rule allows network "loopback"')
    elif decision.rule is None and action == "listen":
        default = policy_table.listen_default(config.policy, len(config.tenant))
        given = json.dumps(config.policy.listen)
        print(f"{verdict}: no rule matches; policy.listen = {given}, which is {default} here")
    elif decision.rule is None:
        print(f"{verdict}: no rule matches; policy.default = {json.dumps(config.policy.default)}")
    else:
        rule = config.policy.rule[decision.rule]
        print(f"{verdict}: policy.rule[{decision.rule}] ({policy_explained.describe(rule)})")
    return 0


def _status(options: argparse.Namespace) -> int:
    from xts_proxy.status import status

    def show() -> int:
        status.show(options.control, as_json=options.json, connections=options.connections, verbose=options.verbose)
        return 0

    return watch(options.watch, show)


def _nic(options: argparse.Namespace) -> int:
    from xts_proxy.nic import report

    report.show(options.control, options.interface, as_json=options.json)
    return 0


def _reload(config: Config, options: argparse.Namespace) -> int:
    """Reasons go to standard error, without a word to the service manager, for the service goes on."""
    from xts_proxy.status import control_socket

    path = options.control or config.proxy.control
    if manager() and (outcome := _succeed(path, options)) is not None:
        return outcome
    try:
        reasons = control_socket.reload(path)
    except OSError as error:
        changed = "; a change of proxy.control needs a restart" if error.errno == errno.ENOENT else ""
        print(f"xts-proxy: {error.strerror or error}{changed}", file=sys.stderr)
        return FAILED
    for reason in reasons:
        print(reason, file=sys.stderr)
    return MISTAKE if reasons else 0


def _succeed(control: str, options: argparse.Namespace) -> int | None:
    """systemd reloads the unit: if root has asked for an upgrade, begins that. None: it has not."""
    from xts_proxy.upgrade import successor

    invitation = successor.invitation(control)
    if invitation is None:
        return None
    given = ["--config", str(options.config)] if options.config else []
    command = [*successor.this_command(), *given, "upgrade", "--control", control]
    with invitation:
        problem = successor.begin(invitation, manager(), int(os.environ.get("MAINPID", "0")), command)
    if problem:
        print(f"xts-proxy: upgrade: {problem}", file=sys.stderr)
    return FAILED if problem else 0


def _upgrade(config: Config, options: argparse.Namespace) -> int:
    """In the unit of the running proxy, where that is a service; else as this process."""
    from xts_proxy.supervisor import quiet_start
    from xts_proxy.upgrade import in_service

    control = options.control or config.proxy.control
    service = None if options.pod or options.granted_fd is not None else in_service.service_of(control)
    if service is None:
        quiet_start.begin()
        return _run(config, options)
    print(in_service.upgrade(service, control))
    return 0


def _open_queues(config: Config, _: argparse.Namespace) -> int:
    if config.proxy.queue == "afxdp":
        from xts_proxy.queues.afxdp_channels import open_ahead  # this imports libxdp, which shm does not need

        open_ahead(config)
    return 0


def _detach(config: Config, _: argparse.Namespace) -> int:
    if config.proxy.queue == "afxdp":
        from xts_bpf.program import detach_left_over  # this imports libxdp

        if server := server_of(config.proxy.control, socket.SOCK_STREAM):
            raise in_use(config.proxy.control, server)
        there = detach_left_over(config.proxy.interface)
        print(f"{config.proxy.interface}: {'the XDP program is detached' if there else 'has no XDP program of XTS'}")
    return 0


def _run(config: Config, options: argparse.Namespace) -> int:
    from xts_messages.services.readiness import Readiness

    from xts_proxy.supervisor import log
    from xts_proxy.supervisor.supervisor import Supervisor
    from xts_proxy.upgrade import in_pods

    # What imports have made stays: collecting garbage before each fork need not look at it (14 to 23 ms each, and less
    # than 0.1 without it), and the forked processes go on sharing it with this one.
    gc.freeze()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it means a reload
    log.start(config.proxy.log_level, config.proxy.log_format)
    if not WIPES_MEMORY:
        log.LOG.warning("tls: OpenSSL was in use before the proxy began: its memory is not wiped when it is freed")

    path = options.config.resolve() if options.config else None
    serves = False
    upgrades = options.command == "upgrade"
    in_pod = upgrades and options.pod
    teller = _teller(options) if upgrades else None
    try:
        if upgrades and options.ready_file:
            options.ready_fd = in_pods.ready_file(options.ready_file)
        readiness = Readiness(options.ready_fd)
        taking = _taking(config, options, teller) if upgrades else None
        with (
            _made(options.make_dir, config),
            Supervisor(config, path, readiness, options.until_fd, taking) as supervisor,
        ):
            supervisor.open()
            serves = True
            asyncio.run(supervisor.run())
            stays = in_pod and supervisor.successors.has_listeners and not supervisor.stop.signalled
        if stays:
            in_pods.stay()
    except OSError as error:
        if teller:
            teller.failed(error.strerror or str(error))
        return _failed(error, FAILED if serves else exit_status.of_start(error))
    return 0


def _teller(options: argparse.Namespace) -> Teller | None:
    """Who tells systemd of this proxy; None: it is not started in a unit."""
    from xts_proxy.upgrade.successor import SystemdTeller

    return SystemdTeller(options.teller_fd) if options.teller_fd is not None else None


def _granted(config: Config, options: argparse.Namespace) -> socket.socket | None:
    """The connection to the running proxy; None: there is none, and this one starts. OSError: it does not hand over."""
    from xts_proxy.upgrade.in_pods import ask_if_one_runs
    from xts_proxy.upgrade.taking import ask_to_take

    if options.granted_fd is not None:
        return socket.socket(fileno=options.granted_fd)
    proxy = config.proxy
    key = attach_token.load_key(proxy.upgrade_key) if proxy.upgrade_key else b""
    return (ask_if_one_runs if options.pod else ask_to_take)(options.control or proxy.control, key)


def _taking(config: Config, options: argparse.Namespace, teller: Teller | None) -> Taking | None:
    """None: this proxy starts. OSError: the running proxy does not hand over, or has queues of another kind."""
    from xts_proxy.upgrade.taking import Taking

    granted = _granted(config, options)
    if granted is None:
        return None
    taking = Taking(granted, teller)
    if taking.queue != config.proxy.queue:
        raise OSError(errno.EINVAL, f"the running proxy has queues of kind {taking.queue}, not {config.proxy.queue}")
    return taking


@contextmanager
def _made(outermost: Path | None, config: Config) -> Iterator[None]:
    """Makes the directory of --make-dir and those from there to the endpoint. OSError: one exists already, or cannot be
    made."""
    with ExitStack() as undo:
        if outermost is not None:
            inner = Path(config.proxy.endpoint).parent
            below = [one for one in (inner, *inner.parents) if outermost in one.parents]
            for directory in (outermost, *reversed(below)):
                try:
                    directory.mkdir(mode=0o700)
                    undo.callback(_remove, directory)
                    if os.geteuid() == 0:
                        directory.chmod(0o711)
                except OSError as error:
                    raise OSError(error.errno, f"{outermost} cannot be made: {error.strerror}") from error
        yield


def _remove(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


if __name__ == "__main__":
    sys.exit(main())
