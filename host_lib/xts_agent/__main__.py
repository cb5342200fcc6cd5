"""`xts-agent`: see --help."""

from __future__ import annotations

import logging
import os
import socket
import sys

from xts_messages.log_format import handler
from xts_messages.standard_output import ends_with_reader

from xts_agent.agent import Agent, stop_on_signals
from xts_agent.config import ConfigError, load, parser


def announce(line: str, ready_fd: int | None) -> None:
    """Notifies all who may wait that the endpoint is served: standard output, a descriptor, systemd."""
    print(line, flush=True)
    if ready_fd is not None:
        os.write(ready_fd, f"{line}\n".encode())
        os.close(ready_fd)
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)


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
        with Agent(config) as agent:
            line = f"ready: {agent.count} queues of {config.name} at {config.endpoint}"
            agent.confine()
            announce(line, options.ready_fd)
            agent.serve(stop_fd)
    except OSError as error:
        print(f"xts-agent: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
