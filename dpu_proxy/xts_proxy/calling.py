"""Calls from the supervisor to the workers' process: a method's name and arguments in one direction, a result or an
error in the other.

A message is a header, the descriptors that come with it, and a body. Calls are pickled: the workers trust the
supervisor. Answers are msgpack, plain data: the supervisor does not trust the workers, as they read what hosts and
peers send.
"""

from __future__ import annotations

import array
import errno
import os
import pickle
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

_HEAD = struct.Struct("=QI")  # number of the call, length of the body
_DESCRIPTORS_MAX = 250  # the kernel's SCM_MAX_FD is 253
_ANSWER_BYTES_MAX = 256 << 20
#: A question to a worker that hangs ends after two seconds (native/worker/run_in_worker.c).
PATIENCE_S = 5.0


class Answer(msgspec.Struct, frozen=True):
    """`error` and `text` are those of an OSError; 0: no error."""

    error: int
    text: str
    result: Any


class Caller:
    """The supervisor's end. A process that does not answer in time must not block the supervisor: the call ends with
    ETIMEDOUT, and so do all later calls, at once, until that answer has come. Late answers are skipped."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._number = 0
        self.silent_since = 0.0  # by time.monotonic(): when the unanswered call was made; 0: none is unanswered

    def call(
        self, method: str, *arguments: Any, descriptors: Sequence[int] = (), patience_s: float | None = PATIENCE_S
    ) -> tuple[Any, list[int]]:
        """Returns the result, and the descriptors that came with it; None: waits for it as long as it takes. OSError:
        what the method raised; EPIPE: the process is gone; ETIMEDOUT."""
        try:
            if self.silent_since and not self._collect(0.0):
                raise _late(method)
            self._number += 1
            self.silent_since = time.monotonic()
            _send(self._sock, self._number, pickle.dumps((method, arguments)), descriptors)
            if not (answered := self._collect(patience_s)):
                raise _late(method)
        except (BrokenPipeError, ConnectionError, EOFError) as error:
            what = f"the workers' process does not answer: {error}"
            raise OSError(errno.EPIPE, what) from error
        body, came = answered
        answer = msgspec.msgpack.decode(body, type=Answer)
        if answer.error:
            raise OSError(answer.error, answer.text)
        return answer.result, came

    def _collect(self, patience_s: float | None) -> tuple[bytearray, list[int]] | None:
        """The answer to the last call, if it has come in time; older answers are skipped."""
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._sock], [], [], left)[0]:
                return None
            number, body, came = _receive(self._sock, _ANSWER_BYTES_MAX)
            if number == self._number:
                self.silent_since = 0.0
                return body, came
            for fd in came:
                os.close(fd)


def _late(method: str) -> OSError:
    return OSError(errno.ETIMEDOUT, f"the workers' process does not answer in time ({method})")


def serve(sock: socket.socket, find: Callable[[str], Callable[..., Any]]) -> None:
    """Answers calls until the caller closes the socket. A method gets the descriptors that came with the call as its
    first argument, and returns its result and the descriptors to send with it."""
    while True:
        try:
            number, body, came = _receive(sock, _ANSWER_BYTES_MAX)
        except EOFError:
            return
        method, arguments = pickle.loads(body)  # it is from the supervisor, which has more privileges than this process
        descriptors: Sequence[int] = ()
        try:
            result, descriptors = find(method)(came, *arguments)
            answer = Answer(0, "", result)
        except OSError as error:
            answer = Answer(error.errno or errno.EIO, error.strerror or str(error), None)
        except Exception as error:  # a bug; no traceback, because that would read files
            answer = Answer(errno.EPROTO, f"{method}: {type(error).__name__}: {error}", None)
        _send(sock, number, msgspec.msgpack.encode(answer), descriptors)


def _send(sock: socket.socket, number: int, body: bytes, descriptors: Sequence[int]) -> None:
    if len(descriptors) > _DESCRIPTORS_MAX:
        raise OSError(errno.E2BIG, f"{len(descriptors)} descriptors in one call; {_DESCRIPTORS_MAX} may be")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([_HEAD.pack(number, len(body))], rights)
    sock.sendall(body)


def _receive(sock: socket.socket, bytes_max: int) -> tuple[int, bytearray, list[int]]:
    head, ancillary, _, _ = sock.recvmsg(_HEAD.size, socket.CMSG_SPACE(4 * _DESCRIPTORS_MAX), socket.MSG_CMSG_CLOEXEC)
    came = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            came.frombytes(data[: len(data) - len(data) % came.itemsize])
    if len(head) < _HEAD.size:
        raise EOFError("it has ended")
    number, length = _HEAD.unpack(head)
    if length > bytes_max:
        raise OSError(errno.EMSGSIZE, f"{length} bytes in one message")
    body = bytearray(length)
    view = memoryview(body)
    while view:
        n = sock.recv_into(view)
        if not n:
            raise EOFError("it broke off")
        view = view[n:]
    return number, body, list(came)
