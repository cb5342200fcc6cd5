"""`xts-agent`: see --help."""

from __future__ import annotations

import logging
import sys

from xts_messages.log_format import handler
from xts_messages.readiness import Readiness
from xts_messages.standard_output import ends_with_reader

from xts_agent.agent import Agent, stop_on_signals
from xts_agent.config import ConfigError, load, parser


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM. 0; 1: could not serve; 2: bad configuration. What went wrong is on standard error."""
    options = parser().parse_args(arguments)
    try:
        config = load(options)
    except ConfigError as error:
        print(f"xts-agent: {error}", file=sys.stderr)
        return 2
    writer = handler(config.log_format, "xts-agent", "xts-agent: %(message)s")
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, handlers=[writer])
    stop_fd = stop_on_signals()
    try:
        readiness = Readiness(options.ready_fd)
        with Agent(config) as agent:
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
