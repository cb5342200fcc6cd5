"""The interposer, put into a folder of the node from which containers have it.

Containers are told /FOLDER/$LIB/libxts-preload.so (container.container_gets). glibc's loader puts the name of its
system's folder for libraries there, which differs between distributions, so that each of the known names leads to the
one copy.
The loader of another C library (musl) looks for a folder called "$LIB", and goes on without.

An upgrade replaces the files in one step each: programs that run keep what they have loaded.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from xts_socket.native import FOLDER

LIBRARIES = ("libxts.so.1", "libxts-preload.so")  # the second needs the first
COPY = "copy"


def folders() -> tuple[str, ...]:
    """What $LIB is: on Fedora, RHEL and SUSE, on Debian and Ubuntu, and on others."""
    return "lib64", f"lib/{platform.machine()}-linux-gnu", "lib"


def install(folder: Path) -> None:
    """Puts the libraries there. OSError: that cannot be done, and why."""
    for name in LIBRARIES:
        copy = folder / COPY / name
        copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = copy.with_name(f".{name}.{os.getpid()}")
        shutil.copyfile(FOLDER / name, temporary)
        temporary.chmod(0o755)
        temporary.rename(copy)
        for place in folders():
            link = folder / place / name
            link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(os.path.relpath(copy, link.parent))
