"""Which ports a process may bind to by the kernel's rule, as far as others can see it.

The kernel's rule (ip(7)): a port below net.ipv4.ip_unprivileged_port_start needs CAP_NET_BIND_SERVICE in the user
namespace that owns the network. Here the network is the one that the endpoint serves. So the capability counts if the
process is in the endpoint's own user namespace: in a namespace that a user has made for himself, he has all
capabilities, and no right to the ports of others.

Both are read from /proc, which shows them of any process to anybody. Between the call that connected and this look, the
process may have become another program: a set-uid program has another user then, and counts for nothing.
"""

from __future__ import annotations

from pathlib import Path

_NET_BIND_SERVICE = 10
_START = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_START_USUAL = 1024
_ROOT = 0


def unprivileged_start() -> int:
    """The first port of this network namespace that needs no privilege."""
    try:
        return max(0, min(int(_START.read_text()), 65535))
    except (OSError, ValueError):
        return _START_USUAL


def first_port(pid: int, uid: int, proc: Path = Path("/proc")) -> int:
    """The first port that this process may bind to; 0: any. `uid`: its user when it connected. `pid` 0: it is not
    visible here, and only its user is known: then root may bind to any."""
    if pid == 0:
        return 0 if uid == _ROOT else unprivileged_start()
    return 0 if _is_capable(proc / str(pid), uid, proc) else unprivileged_start()


def _is_capable(process: Path, uid: int, proc: Path) -> bool:
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
        same_namespace = (process / "uid_map").read_text() == (proc / "self" / "uid_map").read_text()
    except OSError:  # it has ended
        return False
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    try:
        effective_uid = int(fields["Uid"].split()[1])
        capabilities = int(fields["CapEff"], 16)
    except (KeyError, ValueError, IndexError):
        return False
    return same_namespace and effective_uid == uid and bool(capabilities >> _NET_BIND_SERVICE & 1)
