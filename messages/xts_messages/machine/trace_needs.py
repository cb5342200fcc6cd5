"""What tracing with bcc needs of this machine: one place for the tools (xts_bpf/probes.py) and for `xts doctor`.

bcc compiles a program when it is loaded. Ours use no structures of the kernel, so headers of any version serve: those
of the running kernel, those that BCC_KERNEL_SOURCE names, or Debian's linux-headers of another version.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

SOURCES, MODULES = Path("/usr/src"), Path("/lib/modules")
#: Where tracefs may be mounted.
TRACING = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
NO_BCC = (
    "bcc is missing: install python3-bpfcc, and make the environment by `/usr/bin/python3 -m venv "
    "--system-site-packages`"
)
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


def own_headers() -> bool:
    """Does bcc find headers by itself?"""
    return (MODULES / platform.release() / "build").exists() or bool(os.environ.get("BCC_KERNEL_SOURCE"))


def debian_headers() -> tuple[Path, Path] | None:
    """The headers for this processor, and those for all processors, of the latest version that is installed."""
    machine = _PROCESSORS.get(platform.machine(), platform.machine())
    for own in sorted(SOURCES.glob(f"linux-headers-*-{machine}"), reverse=True):
        common = own.with_name(own.name.removesuffix(machine) + "common")
        if common.is_dir():
            return own, common
    return None


def lacks_bcc() -> str:
    """Why bcc cannot be imported; "": it can. This loads nothing of it."""
    there = importlib.util.find_spec("bcc") and importlib.util.find_spec("bcc.table")
    return "" if there else NO_BCC


def lacks_headers() -> str:
    """Why bcc has nothing to compile with; "": it has."""
    if own_headers() or debian_headers():
        return ""
    machine = _PROCESSORS.get(platform.machine(), platform.machine())
    return (
        f"there are no kernel headers: neither /lib/modules/{platform.release()}/build nor /usr/src/linux-headers-*;"
        f" install linux-headers-{machine} (of any version)"
    )


def lacks_tracefs() -> str:
    """Why probes cannot be removed again; "": they can. Only root sees what is mounted there."""
    if any((place / "events").is_dir() for place in TRACING):
        return ""
    return f"tracefs is not mounted: mount -t tracefs tracefs {TRACING[0]}"
