"""The process that has the private keys of TLS (native/keys/): starts it, and tells it what to load.

The supervisor, which may have the privilege, opens the key files but does not read them: it passes the descriptors on.
It gets back a number and the public key for each.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import ExitStack
from dataclasses import dataclass

from xts_proxy import children, sandbox
from xts_proxy._native import lib

_THREADS_MAX = 16
_ORDER = struct.Struct("=I")  # struct key_order
_LOADED = struct.Struct("=iI160sI")  # struct key_loaded, without the public key
_LOADED_BYTES_MAX = _LOADED.size + 4096


@dataclass(frozen=True, slots=True)
class Key:
    """A private key: its number in the key process, with the public key as data; or number 0, with its PEM as data."""

    number: int
    data: bytes | bytearray


class KeyProcess:
    """The process, as the supervisor sees it. A context manager: closing ends the process."""

    def __init__(self, user: str, core_dumps: bool) -> None:
        """Forks it."""
        count = 1 + min(os.cpu_count() or 1, _THREADS_MAX)  # all except the first are in the background
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = control
        #: For the workers; `handed_over()` closes them here.
        self.connections = [ours for ours, _ in pairs]
        served = [its.fileno() for _, its in pairs]

        def serve() -> None:
            sandbox.confine(user, (), core_dumps)
            children.bound_to_parent()
            sandbox.give_up_files(network=False)
            lib.xts_keys_serve(theirs.fileno(), served, len(served))

        with ExitStack() as stack:
            for _, its in pairs:
                stack.enter_context(its)
            stack.enter_context(theirs)
            self.child = children.fork("xts-keys", [theirs.fileno(), *served], serve)

    def close(self) -> None:
        """Harmless when repeated."""
        self.handed_over()
        self._control.close()
        self.child.close()

    def handed_over(self) -> None:
        """The workers have the connections now: closes ours, as no other process may have them."""
        while self.connections:
            self.connections.pop().close()

    def load(self, descriptor: int) -> Key:
        """Makes the process read a file. OSError EINVAL: it is not a usable key, and why; another errno: it cannot be
        read."""
        answer = self._tell(0, [descriptor])
        error, number, reason, public_bytes = _LOADED.unpack_from(answer)
        if error:
            raise OSError(-error, reason.partition(b"\0")[0].decode(errors="replace"))
        return Key(number, answer[_LOADED.size : _LOADED.size + public_bytes])

    def forget(self, key: Key) -> None:
        """Does nothing if the key was forgotten already."""
        if key.number:
            self._tell(key.number, [])

    def _tell(self, number: int, descriptors: list[int]) -> bytes:
        try:
            socket.send_fds(self._control, [_ORDER.pack(number)], descriptors)
            answer = self._control.recv(_LOADED_BYTES_MAX)
        except OSError as error:
            raise OSError(error.errno, f"the process with the keys: {error.strerror}") from error
        if len(answer) < _LOADED.size:
            raise OSError(errno.EPIPE, "the process with the keys has ended")
        return answer


def connect(descriptors: list[int]) -> None:
    """In the workers' process: from now on requests for keys by number go over these connections."""
    result = lib.xts_keys_connect(descriptors, len(descriptors))
    if result:
        raise OSError(-result, f"keys: {os.strerror(-result)}")
