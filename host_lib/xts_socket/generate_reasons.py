"""Regenerates `host_lib/REASONS.md` from native/reason.h and what is said here: `python -m
xts_socket.generate_reasons [--check]`.

With --check nothing is written; the exit status is 1 when the committed file differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from xts_messages import generated

from ._native import lib
from .cli.processes import reason_name, reason_text

OUTPUT = "host_lib/REASONS.md"

#: For each reason: when it is given, and what its reader can do.
ADVICE = {
    "RULE": (
        "The rules were asked at `connect` or `listen`, and a line, or the default, says that the kernel serves it.",
        "`xts status --processes` shows the line; `xts rules explain` says why it and no other decides. Change the "
        "rules and start the program again: they are read once.",
    ),
    "PROTOCOL": (
        "UDP, raw and other sockets, and TCP variants such as MPTCP. Name lookups belong here.",
        "Nothing. A program that asks for MPTCP usually has a setting for plain TCP.",
    ),
    "FAMILY": (
        "Unix, netlink, packet and other sockets that do not speak IP.",
        "Nothing: they have no part in TCP over the network.",
    ),
    "NO_ENDPOINT": (
        "The attach socket is not there, or nobody listens on it; or the rules name another one than the process is "
        "attached to already.",
        "Start `xts-agent`, or `xts-proxy` on the same machine; set `XTS_ENDPOINT` or `xts run --endpoint` to its "
        "path. `xts doctor` looks at it. The next socket tries again. A process is attached to one endpoint: give "
        "each program its own group of rules.",
    ),
    "PROXY_DOWN": (
        "A queue was handed out, and the proxy at its other end did not answer.",
        "Look at the log of `xts-proxy` on the device, and at `xts ping`. The next socket tries again.",
    ),
    "LIMIT": (
        "The proxy serves this host as many sockets as its configuration allows, or the process has as many as the "
        "library can number.",
        "Raise the limit in the proxy's configuration (`xts-proxy status` shows how much of it is used), or have the "
        "program close connections.",
    ),
    "OPTION": (
        "The program has set an option that the proxy's list of options does not have, so that the socket would not "
        "behave as the program expects.",
        "Leave it, or turn the feature off in the program.",
    ),
    "ADDRESS": (
        "The program bound the socket to an address that the device does not have, and this host does.",
        "Bind to the wildcard address or to one of the device's.",
    ),
    "LOCAL": (
        "An offloaded listener on the wildcard address also takes connections from this host itself; those come "
        "through the kernel.",
        "Nothing: this is meant. The listener itself is offloaded.",
    ),
    "RAW": (
        "Before it was connected or listened, it became a stdio stream (`fdopen`), whose reads and writes are made "
        "inside the C library, or was passed to another process over a Unix socket.",
        "Nothing, or connect the socket first: an offloaded one can be a stdio stream, but cannot be passed.",
    ),
    "INHERITED": (
        "The descriptor was there before the interposer was: opened by a parent, a service manager (socket "
        "activation) or another process.",
        "Put `xts run` before the program that opens the socket.",
    ),
    "REFUSED": (
        "The agent or the proxy refused to give this process a queue.",
        "The library's version and the proxy's must fit, and the process must be allowed to use the attach socket "
        "(its mode and group). The log of `xts-agent` has the cause; `xts doctor` tries it.",
    ),
    "FASTOPEN": (
        "The program sends data with the connection request.",
        "Turn TCP Fast Open off in the program.",
    ),
    "ELSEWHERE": (
        "A process used a connection that it shares by `fork` with another one, to which it has moved, or whose state "
        "only that one knows: peek mode, a push or its handshake under way, a PDU half sent. Calls fail with ENOTCONN; "
        "the other process goes on.",
        "Let one process use each connection, as servers that fork do; fork or use it after the handshake, or after "
        "peek mode.",
    ),
    "LOST": (
        "A socket came over `fork` or `exec` that is neither connected nor a listener, a connection in a state that "
        "only its last process knew (as ELSEWHERE, over `exec`), or the proxy could not be reached; or the program was "
        "started by `posix_spawn`, `system` or `popen`, which are inside the C library. A descriptor "
        "that came over `exec` is an unconnected socket then (ENOTCONN); calls in a forked child fail with "
        "ENETDOWN, ECONNRESET or ENOTCONN.",
        "Start the program by `fork` and `exec`; connect after that, and end handshakes and peek mode before; look at "
        "the log of the proxy.",
    ),
    "NO_QUEUE": (
        "The agent or the proxy is there, and has no queue for one process more: all queues of the interface are in "
        "use, the user has as many as one user may (`per_uid_max` of the agent), the proxy serves as many processes "
        "as `limits.clients` allows, or it is stopping. Which of these, `xts status --processes` says in the "
        "endpoint's own words, as do `xts doctor`, the endpoint's log, and Python's error (EUSERS).",
        "Raise that limit, give the interface more queues, or end programs (`xts status` has their queues). The next "
        "socket tries again.",
    ),
}


def document() -> str:
    """The text of REASONS.md."""
    lines = [
        "<!-- Generated from host_lib/native/reason.h by `python -m xts_socket.generate_reasons`. Do not edit. -->",
        "# Why a socket is the kernel's, or gone",
        "",
        "A program under `xts run` keeps a socket of the kernel where it cannot, or shall not, have an offloaded one. "
        "It works as ever, and it is never silent: each has one of these reasons, counted by process and shown by "
        "`xts status --processes`. The numbers do not change.",
        "",
        "Two reasons are about sockets that a process has not at all, though it has their descriptors: ELSEWHERE and "
        "LOST, over `fork` and `exec`. They are counted when the program first uses such a socket, or at the start of "
        "the program that `exec` runs; the first line of `xts status --processes` counts them apart (Gone).",
        "",
        "NO_ENDPOINT, PROXY_DOWN, LIMIT, REFUSED and NO_QUEUE are what nobody asks for: the first of them in a program "
        "is told on standard error, in one line (not with `XTS_QUIET=1`, nor when descriptor 2 is no longer the one "
        "the program began with).",
        "",
        "With `xts run --strict` the call that would leave the socket to the kernel fails instead, except where it is "
        "meant to stay: RULE, PROTOCOL, FAMILY, LOCAL and INHERITED. (Over `fork` and `exec` calls fail in any case.)",
        "",
        *_table(),
    ]
    return "\n".join(lines) + "\n"


def _table() -> Iterator[str]:
    names = [reason_name(number) for number in range(1, lib.XTS_REASON_COUNT)]
    if set(names) != set(ADVICE):
        raise SystemExit(f"reasons without advice, or advice without a reason: {sorted(set(names) ^ set(ADVICE))}")
    yield "| number | name | reason | when | what to do |"
    yield "|---:|---|---|---|---|"
    for number, name in enumerate(names, 1):
        when, advice = ADVICE[name]
        yield f"| {number} | {name} | {reason_text(number)} | {when} | {advice} |"


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the file; returns the exit status."""
    return generated.main("xts_socket.generate_reasons", __doc__, {OUTPUT: document}, argv)


if __name__ == "__main__":
    sys.exit(main())
