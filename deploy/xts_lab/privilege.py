"""What a lab needs: privilege for all of it, and of the kernel for AF_XDP."""

from __future__ import annotations

import os
import socket
from pathlib import Path

RUN_DIRECTORY = Path("/run/xts")

_AF_XDP = 44


class LabError(RuntimeError):
    """The lab cannot do what was asked; the text says what to do about it."""


def missing_privilege() -> list[str]:
    """What this process lacks for a lab, as text for people; empty if nothing."""
    capabilities = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            capabilities = int(line.split()[1], 16)
    wanted = {21: "CAP_SYS_ADMIN (namespaces)", 12: "CAP_NET_ADMIN (interfaces)", 13: "CAP_NET_RAW (AF_XDP)"}
    lacking = [name for bit, name in wanted.items() if not capabilities >> bit & 1]
    if not os.access(RUN_DIRECTORY.parent, os.W_OK):
        lacking.append(f"write permission for {RUN_DIRECTORY.parent}")
    return lacking


def require_privilege() -> None:
    """LabError unless this process can make a lab."""
    if lacking := missing_privilege():
        raise LabError(
            f"a lab needs root; this process lacks {', '.join(lacking)}. Try sudo; without root "
            "`xts dev` runs a program over shared memory and loopback, and `deploy/demo` of a checkout the demo"
        )


def afxdp_unavailable() -> str | None:
    """Why this machine cannot have the lab's AF_XDP queues; None if it can, as far as can be known in advance."""
    release = os.uname().release
    major, minor = (int(part) for part in release.split(".")[:2])
    if (major, minor) < (6, 6):
        return f"kernel {release}: AF_XDP with large frames needs Linux 6.6"
    try:
        socket.socket(_AF_XDP, socket.SOCK_RAW).close()
    except OSError as error:
        return f"no AF_XDP sockets here: {error.strerror}"
    return None
