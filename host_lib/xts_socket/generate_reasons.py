"""Regenerates `host_lib/REASONS.md` from native/core/reason.h and option_table.h, the wire table and what is said here:
`python -m xts_socket.generate_reasons [--check]`.

With --check nothing is written; the exit status is 1 when the committed file differs.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator

from xts_messages.generate import generated
from xts_messages.wire import wire_table as table

from ._native import lib
from .cli.processes.interposed import reason_name, reason_text

OUTPUT = "host_lib/REASONS.md"

#: For each reason: when it is given, and what its reader can do.
ADVICE = {
    "RULE": (
        "The rules were consulted at `bind`, `connect` or `listen`, or at the first datagram. A line, or the default, "
        "says that the kernel serves this socket.",
        "`xts status --processes` shows the line, and `xts rules explain` says why it decides and no other. Change the "
        "rules, and let the program read them again (`xts rules reload`). They apply to its next sockets.",
    ),
    "PROTOCOL": (
        "Raw and other sockets, and UDP where no rule offloads it. MPTCP is offloaded as TCP, which a peer without "
        "MPTCP makes of it too.",
        "Nothing.",
    ),
    "FAMILY": (
        "Unix, netlink, packet and other sockets that do not speak IP.",
        "Nothing. These sockets do not use TCP over the network.",
    ),
    "NO_ENDPOINT": (
        "The attach socket does not exist, or nobody listens on it.",
        "Start `xts-agent`, or `xts-proxy` on the same machine. Set `XTS_ENDPOINT` or `xts run --endpoint` to its "
        "path, or correct the `endpoint` line of the rules. `xts doctor` checks it. The next socket tries again.",
    ),
    "PROXY_DOWN": (
        "The agent gave the process a queue, and the proxy at its other end did not answer. Or the agent gives none "
        "away, because its interface carries nothing at the moment: Python's error and `xts status --processes` say "
        "why.",
        "Look at `xts doctor`, at `xts-proxy status` on the device and at the logs. The next socket tries again.",
    ),
    "LIMIT": (
        "The proxy serves this host as many sockets as its configuration allows, or the process has as many as the "
        "library can number, or no descriptor or memory is left. The line on standard error says which.",
        "Raise that limit, or let the program close connections. `xts-proxy status` shows how much of the proxy's "
        "limits is used, `ulimit -n` how many descriptors a process may have.",
    ),
    "OPTION": (
        "The program has set an option that no offloaded socket carries out, and without which it would not behave as "
        "the program expects. [The table of options](#options) says which these are. Or an option of another kind "
        "failed on the device: it has no interface or route for a multicast group, for instance.",
        "Nothing, or turn the feature off in the program. `xts run` with `XTS_LOG=info` names the option and its "
        "error. `xts status --interfaces` lists the device's interfaces, and `--routes` its routes.",
    ),
    "ADDRESS": (
        "The program bound the socket to an address that this host has and the device does not.",
        "Bind to the wildcard address or to an address of the device.",
    ),
    "LOCAL": (
        "An offloaded listener on the wildcard address also accepts connections from this host itself. Those come "
        "through the kernel.",
        "Nothing: this is meant. The listener itself is offloaded.",
    ),
    "RAW": (
        "Before the socket was connected or listened, it became a stdio stream (`fdopen`), or was passed to another "
        "process over a Unix socket. stdio reads and writes inside the C library, where the interposer does not see "
        "it.",
        "Nothing, or connect the socket first. An offloaded socket can become a stdio stream, and passes to programs "
        "under the interposer.",
    ),
    "INHERITED": (
        "The descriptor existed before the interposer was loaded: a parent, a service manager (socket activation) or "
        "another process opened it.",
        "Put `xts run` before the program that opens the socket.",
    ),
    "REFUSED": (
        "The agent or the proxy refused to give this process a queue.",
        "The versions of library and proxy must fit, and the process must be allowed to use the attach socket (its "
        "mode and group). The log of `xts-agent` has the cause, and `xts doctor` tries it.",
    ),
    "FASTOPEN": (
        "The program has set the option TCP_FASTOPEN_CONNECT, with which the first data leaves with the connection "
        "request. `sendto` with MSG_FASTOPEN does not have this reason: it is carried out as a connect, and then the "
        "data.",
        "Turn TCP Fast Open off in the program.",
    ),
    "ELSEWHERE": (
        "Several processes have a connection by `fork`. This process asked for it, and the one that has it did not "
        "give it up in 2 s. That one is stopped or hangs, or it alone knows the state: peek mode, a push or a "
        "handshake under way. A call that waits fails with ETIMEDOUT here, and later calls ask again. Where the state "
        "was such at the fork, all calls fail with ENOTCONN.",
        "Fork after the handshake or after peek mode. Look at what the other process does.",
    ),
    "LOST": (
        "A socket came over `fork` or `exec` that is neither connected nor a listener. Or it is a connection whose "
        "state only the last process knew (see ELSEWHERE). Or that process was killed, and had not read all that was "
        "delivered to it. Or the proxy could not be reached. Or the C library started the "
        "program inside a call that the interposer does not see (`wordexp`). A descriptor that came over `exec` "
        "is then an unconnected socket (ENOTCONN). Calls in a forked child fail with ENETDOWN, ECONNRESET or "
        "ENOTCONN.",
        "Start the program by `fork` and `exec`, and connect after that. End handshakes and peek mode before. Look at "
        "the log of the proxy.",
    ),
    "VERSION": (
        "Programs with different versions of libxts keep sockets over `exec` and pass them on, as far as the older one "
        "can read what the newer one writes. The records of libxts up to 0.2 can be read by that very build only. The "
        "socket is then unconnected (ENOTCONN), and its peer sees the connection end.",
        "Update the older program, or start both with the same libxts.",
    ),
    "NO_QUEUE": (
        "The agent or the proxy answers, and has no queue for one process more. All queues of the interface are in "
        "use, or the user has as many as one user may (`per_uid_max` of the agent). Or the proxy serves as many "
        "processes as `limits.clients` allows, or it is stopping. `xts status --processes`, `xts doctor`, the "
        "endpoint's log and Python's error (EUSERS) say which of these it is.",
        "Raise that limit, give the interface more queues, or end programs. `xts status` shows who has a queue. The "
        "next socket tries again.",
    ),
}

_INTRODUCTION = (
    "Under `xts run` a socket stays with the kernel where it cannot be offloaded, or where the rules say so. It works "
    "as without `xts run`. Each such socket has one of these reasons. They are counted by process, and "
    "`xts status --processes` shows them. The numbers do not change.",
    "ELSEWHERE, LOST and VERSION are about sockets whose descriptor the process inherited, over `fork` or `exec`, but "
    "whose connection it does not have. They are counted when the program first uses such a socket, or when the "
    "program that `exec` runs starts. The first line of `xts status --processes` counts them separately (Gone).",
    "NO_ENDPOINT, PROXY_DOWN, LIMIT, REFUSED and NO_QUEUE are never intended. So each is reported on standard error "
    "in one line, once among all processes that one `xts run` or `xts dev` has started. It is not reported with "
    "`xts run -q` or `XTS_QUIET=1`, nor when descriptor 2 is no longer the one that the program began with. With "
    "`xts run -v` each program writes when it ends how many sockets were offloaded and how many were not, with all "
    "reasons.",
    "With `xts run --strict` a call fails when it would leave the socket to the kernel. RULE, PROTOCOL, FAMILY, LOCAL "
    "and INHERITED are intended, and do not fail. A line on standard error names the descriptor, the "
    "address, the error and the reason, once for each reason. Over `fork` and `exec` calls fail in any case.",
)


def document() -> str:
    """The text of REASONS.md."""
    lines = [
        "<!-- Generated from host_lib/native/core/reason.h and option_table.h by "
        "`python -m xts_socket.generate_reasons`. Do not edit. -->",
        "# Why a socket stays with the kernel, or is gone",
    ]
    for paragraph in _INTRODUCTION:
        lines += ["", generated.wrapped(paragraph)]
    lines += ["", *_reasons(), "", *_options(), "", *_refusals()]
    return "\n".join(lines) + "\n"


def _reasons() -> Iterator[str]:
    names = [reason_name(number) for number in range(1, lib.XTS_REASON_COUNT)]
    if set(names) != set(ADVICE):
        raise SystemExit(f"reasons without advice, or advice without a reason: {sorted(set(names) ^ set(ADVICE))}")
    yield "| number | name | reason |"
    yield "|---:|---|---|"
    for number, name in enumerate(names, 1):
        yield f"| {number} | [{name}](#{name.lower()}) | {reason_text(number)} |"
    for name in names:
        when, advice = ADVICE[name]
        yield from ("", f"## {name}", "", generated.wrapped(when), "", generated.wrapped(f"**What to do.** {advice}"))


_OPTIONS = (
    "An option that a program sets is carried out by the device or the library, or it is one of these. A *hint* says "
    "how the kernel might do its work, and a program sees no difference: it is accepted, counted (`xts run -v` tells "
    "how many) and told back, and does nothing. An option that *prevents* keeps the socket with the kernel (OPTION) "
    "when it is set before `bind`, `connect` or `listen`, and is refused later. Switched off, it is a hint. All others "
    "are the device's, if the proxy allows them to hosts (`dpu_proxy/native/connection/sockopt.c`), and prevent else.",
    "What may be set, and what is read back, is what this host's kernel says of a socket of its own.",
)

#: The ways of option_table.h, as the document has them.
_WAYS = {
    "HINT": "hint",
    "ANSWERED": "answered by this host's kernel",
    "KEPT": "answered by this host's kernel, once for all",
    "HERE": "carried out by the library",
    "UNFORCED": "carried out by the device, within its own limit, as",
    "PREVENTS": "prevents",
}
_SOCKETS = {"STREAM": "TCP", "DATAGRAM": "UDP", "BOTH": "TCP, UDP"}
TABLE = generated.TOP / "host_lib" / "native" / "core" / "option_table.h"


def _options() -> Iterator[str]:
    rows = re.findall(r'^\tX\((\w+), (\w+), (\w+), (\w+),[ \t\n\\]*"([^"]*)"\)', TABLE.read_text(), re.MULTILINE)
    yield from ("## Options", "")
    for paragraph in _OPTIONS:
        yield from (generated.wrapped(paragraph), "")
    yield "| option | sockets | what becomes of it | what it is about |"
    yield "|---|---|---|---|"
    last = ""
    for level, option, sockets, way, about in rows:
        last = last if about == "the same" else about
        name = f"{option} (IPv6)" if option == "SO_ORIGINAL_DST" and level == "IPPROTO_IPV6" else option
        yield f"| {name} | {_SOCKETS[sockets]} | {_WAYS[way]} | {last} |"


_REFUSALS = (
    "An offloaded socket stays offloaded when the proxy refuses a call on it. The call fails with an errno, and these "
    "are the sentences about it. `xts_last_error()` and Python's `error.reason` give them. What the TCP of the device "
    "refuses has its errno alone. The protocol defines the numbers, and they do not change. Under "
    "`xts run` and `xts dev` a refused `bind`, `connect` or `listen` is also reported on standard error, once for each "
    "sentence."
)


def _refusals() -> Iterator[str]:
    yield from ("## Calls that the proxy refuses", "", generated.wrapped(_REFUSALS), "")
    yield "| number | errno | sentence |"
    yield "|---:|---|---|"
    for number, error, sentence in table.REFUSALS.values():
        yield f"| {number} | {errno.errorcode[error]} | {sentence} |"


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the file; returns the exit status."""
    return generated.main("xts_socket.generate_reasons", __doc__, {OUTPUT: document}, argv)


if __name__ == "__main__":
    sys.exit(main())
