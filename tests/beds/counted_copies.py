"""How many bytes the kernel copies for frames, on all CPUs and for whomever: counted by probes at the functions of
AF_XDP, veth, network cards and software RoCE that do it (tracefs, kprobe_events). Needs a machine that does nothing
else."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
#: What is shorter is no payload, but a frame of control or a header.
PAYLOAD_BYTES = 256
_LENGTH = "bytes=%cx:s32"  # the fourth argument, on x86-64
#: Functions, and what they copy. AF_XDP in copy mode: out of a slot, and into a buffer (a frame from data to data_end).
AFXDP = {"skb_store_bits": _LENGTH, "skb_copy_bits": _LENGTH, "__xsk_map_redirect": "data=+0(%si):u64 end=+8(%si):u64"}
#: On a network card the same, but a frame that is in the queue's own memory (MEM_TYPE_XSK_BUFF_POOL) is not copied when
#: it is handed to its socket. And what makes a packet of the kernel's own out of a frame, as virtio_net may.
_OWN_MEMORY = 3
CARD = {
    "skb_store_bits": _LENGTH,
    "skb_copy_bits": _LENGTH,
    "__xsk_map_redirect": "data=+0(%si):u64 end=+8(%si):u64 memory=+16(+32(%si)):u32",
    "__dev_direct_xmit": "packet=\\1:u8",
    "xsk_construct_skb": "packet=\\1:u8",
}
#: Out of a slot into a packet, and out of a packet into a buffer.
RXE = {"rxe_mr_copy": _LENGTH}
_COPIED, _FRAME = re.compile(r" bytes=(-?\d+)$"), re.compile(r" data=(\d+) end=(\d+)(?: memory=(\d+))?$")


class Copied:
    """How many bytes, when its section is over; and how many packets the kernel has made for it, where a probe sees
    them."""

    bytes = 0
    packets = 0


@contextmanager
def counted(functions: dict[str, str]) -> Iterator[Copied]:
    """Copies inside, of PAYLOAD_BYTES and more each."""
    if not (TRACING / "kprobe_events").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    found = Copied()
    try:
        for name, what in functions.items():
            _tell(f"p:xts/{name} {name} {what}")
        (TRACING / "trace").write_text("")
        _enable(True)
        yield found
        _enable(False)
        trace = (TRACING / "trace").read_text()
        found.bytes = sum(filter(lambda count: count >= PAYLOAD_BYTES, _each(trace)))
        found.packets = trace.count(" packet=1")
    finally:
        with suppress(FileNotFoundError):  # there is none
            _enable(False)
            for name in functions:
                _tell(f"-:xts/{name}")


def _tell(probe: str) -> None:
    """One at a time, and at the end of the file, in which nobody can seek as Python's mode "a" does."""
    where = os.open(TRACING / "kprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(where, f"{probe}\n".encode())
    except OSError as error:
        raise OSError(error.errno, f"{probe}: {error.strerror}") from error
    finally:
        os.close(where)


def _enable(on: bool) -> None:
    (TRACING / "events/xts/enable").write_text(str(int(on)))


def _each(trace: str) -> Iterator[int]:
    for line in trace.splitlines():
        if copied := _COPIED.search(line):
            yield int(copied[1])
        elif (frame := _FRAME.search(line)) and frame[3] != str(_OWN_MEMORY):
            yield int(frame[2]) - int(frame[1])
