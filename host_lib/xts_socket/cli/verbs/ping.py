"""`xts ping`: how long a message takes to the offload proxy and back."""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from ... import info, socket
from ..device.round_trips import round_trips_us
from ..options import add_verb


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "ping", "xts ping -n 1000 --json", run)
    parser.add_argument("-n", type=int, default=10, metavar="COUNT", help="number of round trips (default: 10)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.n < 1:
        raise OSError("-n must be at least 1")
    with socket() as sock:
        first, *rest = round_trips_us(sock, arguments.n + 1)  # the first also makes the proxy's socket
        attachment = info()
    figures = {
        "count": len(rest),
        "first_us": round(first, 1),
        "min_us": round(min(rest), 1),
        "median_us": round(statistics.median(rest), 1),
        "max_us": round(max(rest), 1),
    }
    if arguments.json:
        print(json.dumps({"queue_kind": attachment.queue_kind, "queue_id": attachment.queue_id, **figures}))
    else:
        print(
            f"{attachment.queue_kind} queue {attachment.queue_id}: {len(rest)} round trips,"
            f" min/median/max {figures['min_us']}/{figures['median_us']}/{figures['max_us']} us"
            f" (the first, with a new socket: {figures['first_us']} us)"
        )
    return 0
