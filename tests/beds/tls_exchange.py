"""Both ways of a TLS connection at once, by one thread.

A thread that reads and one that writes would share one SSL of OpenSSL, which only one thread may use at a time, and
Python does not see to it (https://github.com/python/cpython/issues/151508): a reader that takes a ticket of TLS 1.3
meanwhile ends the program with SIGSEGV. Python 3.11 on the kernel's own sockets: within a minute, three times of three.

The data is sent from one place: with the kernel's TLS, OpenSSL sends what was left of a write from where it first was,
whatever there is by then (https://github.com/openssl/openssl/issues/21202; seen with slices of bytes on Linux 6.1).
"""

from __future__ import annotations

import select
import ssl
from contextlib import suppress

from beds.patience import SLOWER

PART = 1 << 16


def exchange(s: ssl.SSLSocket, data: bytes, timeout_s: float = 20.0 * SLOWER) -> bytes:
    """Sends data and receives as many bytes meanwhile. What was received: less than that when the peer ended."""
    sent, got, view = 0, bytearray(), memoryview(data)
    s.setblocking(False)
    poll = select.poll()
    while len(got) < len(data):
        with suppress(ssl.SSLWantWriteError):
            while sent < len(data):
                sent += s.send(view[sent : sent + PART])
        with suppress(ssl.SSLWantReadError):
            while len(got) < len(data) and (part := s.recv(PART)):
                got += part
            break
        poll.register(s, select.POLLIN | (select.POLLOUT if sent < len(data) else 0))
        if not poll.poll(timeout_s * 1000):
            raise TimeoutError(f"{sent} bytes sent, {len(got)} received, then nothing for {timeout_s} s")
    s.settimeout(timeout_s)
    return bytes(got)
