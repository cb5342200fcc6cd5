"""The command: `./tests/stress/run`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from beds import stretched_limits
from xts_messages.terminal.standard_output import ends_with_reader
from xts_messages.version import __version__

from .session import run
from .settings import add_arguments, from_arguments


@ends_with_reader
def main() -> int:
    """Exit status: 0, all was right; 1, something was wrong; 2, the run could not be made."""
    parser = argparse.ArgumentParser(
        prog="tests/stress/run",
        description="Many connections that do everything at once, every byte checked: messages of all sizes both ways, "
        "slow readers, small buffers and windows, half-close, abort, reconnect; with the conservation law of credits "
        "at quiet points, bounds of memory, and a watch for deadlock.",
        epilog="example: ./tests/stress/run --queue afxdp --duration-s 60 --connections 500 --frame-window 4 "
        "--window-bytes 64 --seed 7",
    )
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    add_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is taken down on the way out
    stretched_limits.of_labs()
    try:
        settings = from_arguments(arguments)
        result = run(settings, _show if sys.stderr.isatty() else _Log())
    except (ValueError, OSError, RuntimeError) as error:
        print(f"tests/stress/run: {error}", file=sys.stderr)
        return 2
    if sys.stderr.isatty():
        _show("")
    if arguments.json:
        arguments.json.write_text(json.dumps(result.as_json(), indent=1) + "\n", encoding="utf-8")
    figures = result.host
    if result.failure:
        print(f"FAILED (seed {settings.seed}): {result.failure}")
        return 1
    print(
        f"passed in {result.seconds:.1f} s (seed {settings.seed}, {settings.queue}): {figures['complete']} connections "
        f"complete, {figures['aborted'] + figures['saw_abort']} aborted, {figures['sent_bytes']} bytes sent and "
        f"{figures['received_bytes']} received by the host, each checked; law held {result.law}"
    )
    return 0


def _show(text: str) -> None:
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class _Log:
    """Progress where there is no terminal: a line every five seconds."""

    def __init__(self) -> None:
        self.next = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() >= self.next:
            print(text, file=sys.stderr, flush=True)
            self.next += 5.0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
