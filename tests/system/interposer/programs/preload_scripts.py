"""Programs for the interposer: `python preload_scripts.py NAME[,NAME…]`. What they assert is what the kernel does:
those of KERNEL run without the interposer too. The others look at what the interposer alone can tell.

A process of its own each, for the whole process is concerned: its descriptors, streams, threads, signals.
"""

from __future__ import annotations

import sys

from beds.scripts import apart, scripts
from system.interposer.programs import (
    preload_alone,
    preload_connections,
    preload_descriptors,
    preload_gone,
    preload_limits,
    preload_options,
    preload_own,
    preload_passing,
    preload_processes,
    preload_push,
    preload_shutdown,
    preload_spawn,
    preload_wide,
)

TOPICS = (
    preload_connections,
    preload_descriptors,
    preload_processes,
    preload_alone,
    preload_passing,
    preload_gone,
    preload_push,
    preload_shutdown,
    preload_spawn,
    preload_own,
    preload_options,
    preload_limits,
    preload_wide,
)
#: Each topic has added its programs when it was imported. Those of PUSHES want a proxy with an identity for TLS.
KERNEL, OURS, PUSHES = scripts("as the kernel"), scripts("interposer"), scripts("pushes")


def main() -> None:
    name = apart(sys.argv[1])
    {**KERNEL, **OURS, **PUSHES}[name]()


if __name__ == "__main__":
    main()
