"""The process that has the private keys of TLS (native/keys/): started here, and given what to load.

The supervisor opens key files, which it may be allowed to, and does not read them: it passes the descriptor on. What
it gets back is a number and the public key.
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
    """A private key: its number in the process that has it, and the public key as data; or number 0, and its PEM."""

    number: int
    data: bytes | bytearray


class KeyProcess:
    """The process, from the supervisor. A context manager: closing ends it."""

    def __init__(self, user: str, core_dumps: bool) -> None:
        """Forks it."""
        count = 1 + min(os.cpu_count() or 1, _THREADS_MAX)  # all but the first in the background
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = control
        #: For the workers, which close them with `handed_over()`.
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
        """The workers have the connections: nobody else may."""
        while self.connections:
            self.connections.pop().close()

    def load(self, descriptor: int) -> Key:
        """Has it read a file. OSError EINVAL: it is no key that can be used, and why; another: it cannot be read."""
        answer = self._tell(0, [descriptor])
        error, number, reason, public_bytes = _LOADED.unpack_from(answer)
        if error:
            raise OSError(-error, reason.partition(b"\0")[0].decode(errors="replace"))
        return Key(number, answer[_LOADED.size : _LOADED.size + public_bytes])

    def forget(self, key: Key) -> None:
        """Harmless when it is forgotten already."""
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
    """In the workers' process: keys by number are asked for over these from now on."""
    result = lib.xts_keys_connect(descriptors, len(descriptors))
    if result:
        raise OSError(-result, f"keys: {os.strerror(-result)}")
