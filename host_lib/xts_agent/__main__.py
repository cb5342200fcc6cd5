"""`xts-agent`: see --help."""

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial
from pathlib import Path

from xts_messages import attach_token
from xts_messages.configuration_file import parse_toml, read_text
from xts_messages.log_format import handler
from xts_messages.readiness import Readiness
from xts_messages.standard_output import ends_with_reader

from xts_agent.agent import Agent
from xts_agent.config import AgentConfig, ConfigError, load, parser, render
from xts_agent.signals import stop_on_signals
from xts_agent.users import find_user


def check(options: argparse.Namespace, config: AgentConfig) -> int:
    """--check: reports what can only be found on this machine, and prints the values in effect. Returns the exit
    status."""
    wrong = []
    missing = [name for one in config.each() if not Path(f"/sys/class/net/{(name := one.name)}").exists()]
    if missing:
        print(f"xts-agent: warning: no interface {', '.join(missing)} here, now", file=sys.stderr)
    try:
        if config.token_key:
            attach_token.load_key(config.token_key)
    except OSError as error:
        wrong.append(f"token_key: {error.strerror or error}")
    try:
        if config.metrics_certificate or config.metrics_key or config.metrics_token:
            from xts_messages import metrics_credentials  # this imports ssl

            metrics_credentials.read(config.metrics_certificate, config.metrics_key, config.metrics_token)
    except (OSError, ValueError) as error:
        wrong.append(f"metrics_certificate, metrics_key, metrics_token: {error}")
    try:
        find_user(config.user)
    except OSError as error:
        wrong.append(f"user: {error.strerror or error}")
    for text in wrong:
        print(f"xts-agent: {text}", file=sys.stderr)
    if wrong:
        return 1
    raw = parse_toml(read_text(options.config)) if options.config else {}
    given = {*raw, *(name for name in AgentConfig.__struct_fields__ if getattr(options, name, None) is not None)}
    print("ok\n")
    print(render(config, given), end="")
    return 0


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM. Returns 0; 1: it could not serve; 2: bad configuration. Errors go to standard error."""
    options = parser().parse_args(arguments)
    try:
        config = load(options)
    except ConfigError as error:
        for mistake in str(error).splitlines():
            print(f"xts-agent: {mistake}", file=sys.stderr)
        return 2
    if options.check:
        return check(options, config)
    writer = handler(config.log_format, "xts-agent", "xts-agent: %(message)s")
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, handlers=[writer])
    stop_fd = stop_on_signals()
    try:
        readiness = Readiness(options.ready_fd)
        with Agent(config, options.config or "", partial(load, options)) as agent:
            line = f"ready: {agent.count} queues of {config.name} at {config.endpoint}"
            agent.confine()
            print(line, flush=True)
            readiness.ready(line, line)
            agent.serve(stop_fd, readiness)
            readiness.stopping("stopping")
    except OSError as error:
        print(f"xts-agent: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
