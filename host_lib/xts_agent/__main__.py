"""`xts-agent`: see --help."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from xts_messages.attaching import attach_token
from xts_messages.metrics.metric_list import list_asked, listing
from xts_messages.queues import rdma
from xts_messages.services import exit_status
from xts_messages.services.exit_status import FAILED, MISTAKE
from xts_messages.services.log_format import handler
from xts_messages.services.log_lines import have_standard_descriptors
from xts_messages.services.readiness import Readiness
from xts_messages.services.served_sockets import check_unserved, in_use, server_of
from xts_messages.settings.config_mistakes import ConfigError, Mistake
from xts_messages.settings.configuration_file import parse_toml, read_text
from xts_messages.settings.toml_positions import locate
from xts_messages.terminal.standard_output import ends_with_reader

from xts_agent import found_relay
from xts_agent.agent import Agent
from xts_agent.config import AgentConfig, file_of, load, parser, render
from xts_agent.signals import stop_on_signals
from xts_agent.users import find_user


def check(options: argparse.Namespace, config: AgentConfig) -> int:
    """--check: reports what can only be found on this machine, and prints the values in effect. Returns the exit
    status."""
    file = file_of(options)
    missing = [name for one in config.each() if not Path(f"/sys/class/net/{(name := one.name)}").exists()]
    if missing and not options.quiet:
        print(f"{file}: warning: no interface {', '.join(missing)} here, now", file=sys.stderr)
    text = read_text(file)
    if wrong := list(_wrong_here(config)):
        places = locate(text)
        for key, problem in wrong:
            place = places.get((key,))
            print(Mistake(file, place.value if place else None, key, problem), file=sys.stderr)
        return MISTAKE
    if not options.quiet:
        given = {
            *parse_toml(text),
            *(name for name in AgentConfig.__struct_fields__ if getattr(options, name, None) is not None),
        }
        print("ok\n")
        print(render(config, given), end="")
    return 0


def _wrong_here(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Keys whose files or users do not exist on this machine, or cannot be used, and why."""
    try:
        if config.token_key:
            attach_token.load_key(config.token_key)
    except OSError as error:
        yield "token_key", error.strerror or str(error)
    try:
        if config.metrics_certificate or config.metrics_key or config.metrics_token:
            from xts_messages.metrics import metrics_credentials  # this imports ssl

            metrics_credentials.read(config.metrics_certificate, config.metrics_key, config.metrics_token)
    except (OSError, ValueError) as error:
        which = getattr(error, "which", "certificate")
        yield f"metrics_{which}", str(error)
    try:
        if config.queue == "rdma":
            rdma.check_installed()
    except OSError as error:
        yield "queue", error.strerror or str(error)
    try:
        find_user(config.user)
    except OSError as error:
        yield "user", error.strerror or str(error)


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM. Returns 0, or one of exit_status. Errors go to standard error."""
    have_standard_descriptors()
    command_line = parser()
    options = command_line.parse_args(arguments)
    if list_asked(command_line, options):
        from xts_agent import metric_catalogue  # this imports prometheus_client

        print(listing(metric_catalogue.PARTS, options))
        return 0
    if options.unserved is not None:
        return check_unserved(options.unserved, "xts-agent")
    try:
        config = load(options)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(mistake, file=sys.stderr)
        if not options.check:  # which is no start of the service, and may be a part of its reload
            exit_status.tell(str(error.mistakes[0]))
        return MISTAKE
    if options.check:
        return check(options, config)
    return (detach if options.detach else run)(options, config)


def detach(_: argparse.Namespace, config: AgentConfig) -> int:
    """--detach; returns the exit status."""
    from xts_bpf.program import detach_left_over  # this imports libxdp

    try:
        server = server_of(config.endpoint, socket.SOCK_SEQPACKET)
        if server and server.program != "xts-proxy":  # which has other queues there
            raise in_use(config.endpoint, server)
        for one in config.each():
            there = detach_left_over(one.name)
            found_relay.forget(found_relay.path_of(one.endpoint, one.name))  # no agent is to come
            print(f"{one.name}: {'the XDP program is detached' if there else 'has no XDP program of XTS'}")
    except OSError as error:
        print(f"xts-agent: {error.strerror or error}", file=sys.stderr)
        return FAILED
    return 0


def run(options: argparse.Namespace, config: AgentConfig) -> int:
    """Serves; returns the exit status."""
    writer = handler(config.log_format, "xts-agent", "xts-agent: %(message)s")
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, handlers=[writer])
    stop_fd = stop_on_signals()
    serves = False
    try:
        readiness = Readiness(options.ready_fd)
        with Agent(config, options.config or "", partial(load, options)) as agent:
            served = "a relay over RDMA" if config.queue == "rdma" else f"{agent.count} queues"
            line = f"ready: {served} of {config.name} at {config.endpoint}"
            agent.confine()
            print(line, flush=True)
            readiness.ready(line, line)
            serves = True
            agent.serve(stop_fd, readiness)
            readiness.stopping("stopping")
    except OSError as error:
        reason = error.strerror or str(error)
        print(f"xts-agent: {reason}", file=sys.stderr)
        exit_status.tell(reason)
        return FAILED if serves else exit_status.of_start(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
