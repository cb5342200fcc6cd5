"""`xts`: looking at offloaded sockets from the host. One file a verb; each has `add(subparsers)` and
`run(arguments)`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from . import doctor, ping, status

_EXAMPLES = """\
examples:
  xts status                  the sockets of this host's processes, as ss(8) shows kernel sockets
  xts doctor                  what this machine can and cannot do, and how to mend it
  xts ping -n 100             the time of a round trip to the offload proxy
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0 well, 1 not, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="xts",
        description="Looks at the sockets this host has offloaded to its proxy.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb in (status, doctor, ping):
        verb.add(verbs)
    parsed = parser.parse_args(arguments)
    if parsed.endpoint is not None:
        os.environ["XTS_ENDPOINT"] = parsed.endpoint
    try:
        return int(parsed.run(parsed))
    except BrokenPipeError:  # xts status | head
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as failure:
        print(f"xts: {failure.strerror or failure}", file=sys.stderr)
        return 1
