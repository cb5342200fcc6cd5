"""A server of the kernel's sockets, in a thread, for clients that come one after the other."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

from beds.patience import SLOWER

_JOIN_S = 30.0 * SLOWER


class KernelServer:
    """At `port` of the loopback, until the end of a `with` block. Who derives from it says what serve() does."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_JOIN_S)
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):  # it was shut down
            while True:
                self.serve(self._listener.accept()[0])

    def serve(self, sock: socket.socket) -> None:
        """One connection, which it closes. OSError ends the server."""
        raise NotImplementedError
