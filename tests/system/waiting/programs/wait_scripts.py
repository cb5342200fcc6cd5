"""Waits of a program that knows nothing of XTS: `python wait_scripts.py` prints JSON, script name -> what happened.

Run twice, on the kernel's sockets and under the interposer, with equal results."""

from __future__ import annotations

import faulthandler
import json
import sys
from typing import Any

from beds.scripts import scripts
from system.waiting.programs import wait_epoll, wait_polls, wait_signals, wait_threads
from system.waiting.programs.wait_bed import Peer, Run

#: Each topic has added its scripts when it was imported.
TOPICS = (wait_polls, wait_epoll, wait_threads, wait_signals)
SCRIPTS = scripts("waits")


def main() -> None:
    faulthandler.dump_traceback_later(80, exit=True)
    wanted = sys.argv[1:] or list(SCRIPTS)
    traces: dict[str, Any] = {}
    peer = Peer()
    for name in wanted:
        run = Run(peer)
        try:
            with run.kept:
                SCRIPTS[name](run)
        except Exception as error:
            run.note("failed", f"{type(error).__name__}: {error} at lines {lines_of(error)}")
        traces[name] = run.notes
    peer.process.kill()
    peer.process.wait()
    json.dump(traces, sys.stdout)


def lines_of(error: BaseException) -> list[int]:
    lines: list[int] = []
    at = error.__traceback__
    while at:
        lines.append(at.tb_lineno)
        at = at.tb_next
    return lines


if __name__ == "__main__":
    main()
