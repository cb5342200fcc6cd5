"""`xts-trace drops`: redirect errors and exceptions of our XDP program, from the kernel's tracepoints (bcc).

For a person who looks for lost frames: `xdp_redirect_err` tells why a frame did not reach its socket (ENOBUFS: the fill
ring was empty; ENOSPC: the receive ring was full; EINVAL: no socket on this queue). The tracepoints fire for every
program of the machine, in every namespace, so events are filtered by our program's number.
"""

from __future__ import annotations

import errno
from typing import Any

from pyroute2 import IPRoute
from xts_messages.machine.trace_needs import NO_BCC

from xts_bpf.probes import TraceError, kernel_headers
from xts_bpf.program import interface_index

SOURCE = """
struct key_t { u32 event; s32 error; u32 interface; u32 queue; };
BPF_HASH(events, struct key_t, u64, 1024);

TRACEPOINT_PROBE(xdp, xdp_redirect_err)
{
    struct key_t key = {.event = 0, .error = args->err, .interface = args->ifindex, .queue = args->map_index};
    if (args->prog_id == PROGRAM_ID)
        events.increment(key);
    return 0;
}

TRACEPOINT_PROBE(xdp, xdp_exception)
{
    struct key_t key = {.event = 1, .error = args->act, .interface = args->ifindex};
    if (args->prog_id == PROGRAM_ID)
        events.increment(key);
    return 0;
}
"""
EVENTS = ("redirect error", "exception")


def program_of(interface: str) -> int:
    """The number of the XDP program on an interface of this network namespace."""
    with IPRoute() as ip:
        xdp = ip.link("get", index=interface_index(interface))[0].get_attr("IFLA_XDP")
    number = xdp.get_attr("IFLA_XDP_PROG_ID") if xdp else None
    if not number:
        raise TraceError(f"{interface} has no XDP program: start xts-agent or xts-proxy first")
    return int(number)


class Tracer:
    """Counts the events of one program, from its construction on."""

    def __init__(self, program_id: int) -> None:
        try:
            from bcc import BPF
        except ImportError:
            raise TraceError(NO_BCC) from None
        try:
            with kernel_headers():
                self._bpf: Any = BPF(text=SOURCE.replace("PROGRAM_ID", str(program_id)).encode())
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(f"bcc: {error}. It needs root, and tracefs in /sys/kernel/tracing") from None

    def counts(self) -> list[dict[str, int | str]]:
        """One row per kind of event, error, interface and queue."""
        return [
            {
                "event": EVENTS[key.event],
                "error": errno.errorcode.get(-key.error, str(key.error)) if key.event == 0 else f"action {key.error}",
                "ifindex": int(key.interface),
                "queue": int(key.queue),
                "count": int(value.value),
            }
            for key, value in self._bpf[b"events"].items()
        ]

    def close(self) -> None:
        """Removes the probes."""
        self._bpf.cleanup()
