"""Calls from the supervisor to the workers' process: a method's name and arguments in one direction, a result or an
error in the other.

A message is a header, the descriptors that come with it, and a body. Calls are pickled: the workers trust the
supervisor. Answers are msgpack, plain data: the supervisor does not trust the workers, as they read what hosts and
peers send.

Theory of operation. The supervisor's end never blocks in a system call: a call has one deadline, for all of its bytes
and all bytes of its answer. When that is over, what has come of the answer is kept, and so is what is not sent yet of
the call; the next call goes on with both first. An answer takes memory as it comes, never on the word of its header,
and at most what is declared for its method. A process that breaks a rule is not asked again.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

_HEAD = struct.Struct("=QI")  # number of the call, length of the body
_DESCRIPTORS_MAX = 250  # the kernel's SCM_MAX_FD is 253
_PIECE_BYTES = 256 << 10
#: A question to a worker that hangs ends after two seconds (native/loop/run_in_worker.c).
PATIENCE_S = 5.0


class Answer(msgspec.Struct, frozen=True):
    """`error` and `text` are those of an OSError; 0: no error."""

    error: int
    text: str
    result: Any


@dataclass(slots=True)
class Message:
    """A message that comes in pieces. `bytes_max`: how long its body may be."""

    bytes_max: int
    head: bytearray = field(default_factory=bytearray)
    body: bytearray = field(default_factory=bytearray)
    descriptors: list[int] = field(default_factory=list)
    lost: bool = False  # descriptors that this process has no room for, and which the kernel has closed

    @property
    def number(self) -> int:
        """The number of the call; 0: the header is not here yet."""
        return int(_HEAD.unpack(self.head)[0]) if len(self.head) == _HEAD.size else 0

    def _missing(self) -> int:
        """How many bytes are still to come, as far as is known. OSError EMSGSIZE."""
        if len(self.head) < _HEAD.size:
            return _HEAD.size - len(self.head)
        length = int(_HEAD.unpack(self.head)[1])
        if length > self.bytes_max:
            raise OSError(errno.EMSGSIZE, f"a message of {length} bytes, of which {self.bytes_max} are allowed")
        return length - len(self.body)

    def receive(self, sock: socket.socket) -> bool:
        """Takes what there is, without going past its end. True: it is whole. BlockingIOError; EOFError; OSError
        EMSGSIZE."""
        while missing := self._missing():
            room = socket.CMSG_SPACE(4 * _DESCRIPTORS_MAX)
            data, ancillary, flags, _ = sock.recvmsg(min(missing, _PIECE_BYTES), room, socket.MSG_CMSG_CLOEXEC)
            self.lost |= bool(flags & socket.MSG_CTRUNC)
            for level, kind, rights in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    came = array.array("i")
                    came.frombytes(rights[: len(rights) - len(rights) % came.itemsize])
                    self.descriptors += came
            if not data:
                raise EOFError("it broke off" if self.head else "it has ended")
            if len(self.descriptors) > _DESCRIPTORS_MAX:
                raise OSError(errno.EMSGSIZE, "a message with too many descriptors")
            if len(self.head) < _HEAD.size:
                self.head += data
            else:
                self.body += data
        return True

    def close(self) -> None:
        """Closes the descriptors that came with it."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def check(self) -> None:
        """When it is whole. OSError EMFILE: some of its descriptors are lost; the others are closed."""
        if self.lost:
            self.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Caller:
    """The supervisor's end. A process that does not answer in time must not block the supervisor: the call ends with
    ETIMEDOUT, and so do all later calls, at once, until that answer has come. Late answers are skipped."""

    def __init__(self, sock: socket.socket, answer_bytes_max: Mapping[str, int], ended_fd: int = -1) -> None:
        """`answer_bytes_max`: how long the answer may be, by method; others cannot be called. `ended_fd`: readable when
        the process has ended, where the end of `sock` does not show that, as another process shares it."""
        sock.setblocking(False)
        self._ended_fd = ended_fd
        self._sock = sock
        self._bytes_max = answer_bytes_max
        self._number = 0
        self._unsent = memoryview(b"")
        self._answer = Message(0)
        self.broken = ""  # why it is not asked any more
        self.silent_since = 0.0  # by time.monotonic(): when the unanswered call was made; 0: none is unanswered

    def call(
        self, method: str, *arguments: Any, descriptors: Sequence[int] = (), patience_s: float | None = PATIENCE_S
    ) -> tuple[Any, list[int]]:
        """Returns the result, and the descriptors that came with it; None: waits for it as long as it takes. OSError:
        what the method raised; EPIPE: the process is gone, or broke a rule; ETIMEDOUT."""
        if self.broken:
            raise OSError(errno.EPIPE, self.broken)
        bytes_max = self._bytes_max[method]
        try:
            if self.silent_since:
                if not self._exchange(time.monotonic()):
                    raise _late(method)
                self._answer.close()
            deadline = None if patience_s is None else time.monotonic() + patience_s
            self._begin(pickle.dumps((method, arguments)), descriptors, bytes_max)
            if not self._exchange(deadline):
                raise _late(method)
            answer = msgspec.msgpack.decode(self._answer.body, type=Answer)
        except TimeoutError:
            raise
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self._answer.close()
            self.broken = f"the workers' process does not answer: {error}"
            raise OSError(errno.EPIPE, self.broken) from error
        came, whole = self._answer.descriptors, self._answer
        self._answer = Message(0)
        whole.check()
        if answer.error:
            for fd in came:
                os.close(fd)
            raise OSError(answer.error, answer.text)
        return answer.result, came

    def _begin(self, body: bytes, descriptors: Sequence[int], bytes_max: int) -> None:
        """Sends as much of a call as goes at once: with the first bytes go the descriptors. What is before it has been
        read, so there is room."""
        self._number += 1
        self.silent_since = time.monotonic()
        self._answer = Message(bytes_max)
        data = memoryview(_HEAD.pack(self._number, len(body)) + body)
        self._unsent = data[self._sock.sendmsg([data], _rights(descriptors)) :]

    def _exchange(self, deadline: float | None) -> bool:
        """Sends the rest of the call, and takes its answer. False: not all of it until the deadline."""
        wait = select.poll()
        wait.register(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if self._ended_fd >= 0:
            wait.register(self._ended_fd, select.POLLIN)
        ended = False
        while True:
            try:
                if self._unsent:
                    self._unsent = self._unsent[self._sock.send(self._unsent) :]
                if not self._unsent:
                    wait.modify(self._sock, select.POLLIN)
                    if self._answer.receive(self._sock):
                        break
            except BlockingIOError:
                if ended:
                    raise EOFError("it has ended") from None
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            found = wait.poll(None if left_s is None else left_s * 1000)
            ended = any(fd == self._ended_fd for fd, _ in found)
        if self._answer.number != self._number:
            raise OSError(errno.EPROTO, f"an answer to call {self._answer.number}, not {self._number}")
        self.silent_since = 0.0
        return True


def _late(method: str) -> OSError:
    return OSError(errno.ETIMEDOUT, f"the workers' process does not answer in time ({method})")


def _rights(descriptors: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    if len(descriptors) > _DESCRIPTORS_MAX:
        raise OSError(errno.E2BIG, f"{len(descriptors)} descriptors in one call; {_DESCRIPTORS_MAX} may be")
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []


class Handed(list[int]):
    """Descriptors that a method returns for good: they are closed here when they have been sent."""


def serve(sock: socket.socket, find: Callable[[str], Callable[..., Any]]) -> None:
    """Answers calls until the caller closes the socket. A method gets the descriptors that came with the call as its
    first argument, and returns its result and the descriptors to send with it."""
    while True:
        call = Message(1 << 32)  # the supervisor is trusted
        try:
            call.receive(sock)
        except EOFError:
            return
        method, arguments = pickle.loads(call.body)  # the supervisor has more privileges than this process
        descriptors: Sequence[int] = ()
        try:
            call.check()
            result, descriptors = find(method)(call.descriptors, *arguments)
            answer = Answer(0, "", result)
        except OSError as error:
            answer = Answer(error.errno or errno.EIO, error.strerror or str(error), None)
        except Exception as error:  # a bug; no traceback, because that would read files
            answer = Answer(errno.EPROTO, f"{method}: {type(error).__name__}: {error}", None)
        body = msgspec.msgpack.encode(answer)
        sock.sendmsg([_HEAD.pack(call.number, len(body))], _rights(descriptors))
        sock.sendall(body)
        if isinstance(descriptors, Handed):
            while descriptors:
                os.close(descriptors.pop())
