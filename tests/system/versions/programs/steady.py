"""One connection, by the library of whichever version runs this: a line for each line of its input, when it has
exchanged something with a peer of the kernel."""

from __future__ import annotations

import os
import socket as kernel
import sys

import xts_socket

with (
    kernel.create_server(("127.0.0.1", 0)) as listener,
    xts_socket.create_connection(listener.getsockname(), timeout=15) as s,
):
    peer, _ = listener.accept()
    for _ in sys.stdin:
        sent = os.urandom(1000)
        s.sendall(sent)
        assert peer.recv(1000, kernel.MSG_WAITALL) == sent
        peer.sendall(sent)
        assert s.recv(1000, xts_socket.MSG_WAITALL) == sent
        print("exchanged", flush=True)
