"""The process that has the private keys of TLS (native/keys/): starts it, and tells it what to load.

The supervisor, which may have the privilege, opens the key files but does not read them: it passes the descriptors on.
It gets back a number and the public key for each. An order that is not answered in time is given up; its answer is
dropped when it comes, and so is the key that it has loaded.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from xts_proxy._native import lib
from xts_proxy.supervisor import children, sandbox

_Result = TypeVar("_Result")

_THREADS_MAX = 16
_ORDER = struct.Struct("=II")  # struct key_order
_LOADED = struct.Struct("=iI160sI")  # struct key_loaded, without the public key
_LOADED_BYTES_MAX = _LOADED.size + 4096
#: Loading a key takes milliseconds, and the process has the lowest priority.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Key:
    """A private key: its number in the key process, with the public key as data; or number 0, with its PEM as data."""

    number: int
    data: bytes | bytearray


class Orders:
    """Orders to the process, one at a time. It answers them in their order."""

    def __init__(self, control: socket.socket, patience_s: float = PATIENCE_S) -> None:
        self._control = control
        self._patience_s = patience_s
        self._given_up: list[bool] = []  # orders whose answers have yet to come: was it to load a key?
        self._unwanted: list[int] = []  # keys that it has to forget

    def load(self, descriptor: int, number: int = 0) -> bytes:
        """The answer. `number`: of the key, if another process has had it under that. OSError ETIMEDOUT: there is none
        in time."""
        return self._in_time(lambda deadline: self._exchange(_ORDER.pack(0, number), [descriptor], deadline))

    def forget(self, number: int) -> None:
        """OSError ETIMEDOUT: it is told again, before the next order."""
        self._unwanted.append(number)
        self._in_time(lambda deadline: None)

    def _in_time(self, run: Callable[[float], _Result]) -> _Result:
        deadline = time.monotonic() + self._patience_s
        try:
            self._catch_up(deadline)
            return run(deadline)
        except TimeoutError:
            text = f"the process with the keys has not answered within {self._patience_s:.0f} s"
            raise OSError(errno.ETIMEDOUT, text) from None
        except OSError as error:
            raise OSError(error.errno, f"the process with the keys: {error.strerror}") from error

    def _catch_up(self, deadline: float) -> None:
        while self._given_up:
            answer = self._receive(deadline)
            error, number, *_ = _LOADED.unpack_from(answer)
            if self._given_up.pop(0) and not error:
                self._unwanted.append(number)
        while self._unwanted:
            self._exchange(_ORDER.pack(self._unwanted[0], 0), [], deadline)
            self._unwanted.pop(0)

    def _exchange(self, order: bytes, descriptors: list[int], deadline: float) -> bytes:
        self._wait_until(deadline)
        socket.send_fds(self._control, [order], descriptors)
        try:
            return self._receive(deadline)
        except TimeoutError:
            self._given_up.append(bool(descriptors))
            raise

    def _receive(self, deadline: float) -> bytes:
        self._wait_until(deadline)
        answer = self._control.recv(_LOADED_BYTES_MAX)
        if len(answer) < _LOADED.size:
            raise OSError(errno.EPIPE, "it has ended")
        return answer

    def _wait_until(self, deadline: float) -> None:
        self._control.settimeout(max(deadline - time.monotonic(), 0.001))


class KeyProcess:
    """The process, as the supervisor sees it. A context manager: closing ends the process."""

    #: For the workers; `handed_over()` closes them here.
    connections: list[socket.socket]
    child: children.Child

    def __init__(self, user: str, core_dumps: bool) -> None:
        """Forks it."""
        self._user, self._core_dumps = user, core_dumps
        self._in_force: list[tuple[str, Key]] = []
        self._last_number = 0
        self._lost: set[int] = set()  # numbers that a process had, and the next one has not
        self._fork()

    def _fork(self) -> None:
        count = 1 + min(os.cpu_count() or 1, _THREADS_MAX)  # all except the first are in the background
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = control
        self._orders = Orders(control)
        self.connections = [ours for ours, _ in pairs]
        served = [its.fileno() for _, its in pairs]

        def serve() -> None:
            sandbox.confine(self._user, (), self._core_dumps)
            children.bound_to_parent()
            sandbox.give_up_files(network=False)
            lib.xts_keys_serve(theirs.fileno(), served, len(served), self._last_number)

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
        key = self._load(descriptor, 0)
        self._last_number = max(self._last_number, key.number)
        return key

    def _load(self, descriptor: int, number: int) -> Key:
        answer = self._orders.load(descriptor, number)
        error, number, reason, public_bytes = _LOADED.unpack_from(answer)
        if error:
            raise OSError(-error, reason.partition(b"\0")[0].decode(errors="replace"))
        return Key(number, answer[_LOADED.size : _LOADED.size + public_bytes])

    def in_force(self, keys: Sequence[tuple[str, Key]]) -> None:
        """From now on these are what start_again() loads, each with the name of its file."""
        self._in_force = [(name, key) for name, key in keys if key.number]

    def start_again(self, open_file: Callable[[str], int]) -> list[str]:
        """The process has ended: starts another one, with the same keys under the same numbers. Returns which it does
        not have, and why: their identities serve nobody until their files fit, or the next reload."""
        self.close()
        self._fork()
        problems = []
        for name, key in self._in_force:
            self._lost.add(key.number)
            try:
                with os.fdopen(open_file(name), "rb", buffering=0) as file:
                    again = self._load(file.fileno(), key.number)
            except OSError as error:
                problems.append(f"{name}: {error.strerror}")
                continue
            if again.data != key.data:
                self.forget(again)
                problems.append(f"{name} has another key than the one in force: reload the configuration")
                continue
            self._lost.discard(key.number)
        return problems

    def holds(self, key: Key) -> bool:
        """Does the process have this one, which is in force?"""
        return key.number not in self._lost

    def forget(self, key: Key) -> None:
        """Does nothing if the key was forgotten already."""
        if key.number:
            self._orders.forget(key.number)


def go_on() -> None:
    """In a workers' process that goes on for one that has died."""
    result = lib.xts_keys_go_on()
    if result:
        raise OSError(-result, f"keys: {os.strerror(-result)}")


def renew(descriptors: list[int]) -> None:
    """In the workers' process: the key process has died, and these connections to the next one take the place of those
    before. They are closed."""
    count = len(descriptors)
    result = lib.xts_keys_renew(descriptors, count)
    descriptors.clear()
    if result:
        raise OSError(-result, f"keys: {os.strerror(-result)}")


def connect(descriptors: list[int]) -> None:
    """In the workers' process: from now on requests for keys by number go over these connections."""
    result = lib.xts_keys_connect(descriptors, len(descriptors))
    if result:
        raise OSError(-result, f"keys: {os.strerror(-result)}")
