"""Programs for the interposer: `python preload_scripts.py NAME`. What they assert is what the kernel does: those of
KERNEL run without the interposer too. The others look at what the interposer alone can tell.

A process of its own each, for the whole process is concerned: its descriptors, streams, threads, signals.
"""

from __future__ import annotations

import faulthandler
import sys

from system.interposer.programs import (
    preload_connections,
    preload_descriptors,
    preload_gone,
    preload_limits,
    preload_own,
    preload_processes,
    preload_push,
)
from system.interposer.programs.interposed import KERNEL, OURS, PUSHES

TOPICS = (
    preload_connections,
    preload_descriptors,
    preload_processes,
    preload_gone,
    preload_push,
    preload_own,
    preload_limits,
)
#: Each topic has added its programs when it was imported.
PROGRAMS = KERNEL | OURS | PUSHES


def main() -> None:
    faulthandler.dump_traceback_later(40, exit=True)
    PROGRAMS[sys.argv[1]]()


if __name__ == "__main__":
    main()
