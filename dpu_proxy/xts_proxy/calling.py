"""Calls from the supervisor to the workers' process: a method's name and arguments one way, a result or an error back.

A message is a head, the descriptors that come with it, and a body. Questions are pickled: the supervisor is trusted by
the workers. Answers are msgpack, plain data: it does not trust them, as they read what hosts and peers send.
"""

from __future__ import annotations

import array
import errno
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

_HEAD = struct.Struct("=I")
_DESCRIPTORS_MAX = 250  # SCM_MAX_FD has 253
_ANSWER_BYTES_MAX = 256 << 20


class Answer(msgspec.Struct, frozen=True):
    """`error` and `text`: of an OSError; 0 for none."""

    error: int
    text: str
    result: Any


def call(sock: socket.socket, method: str, *arguments: Any, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
    """The result, and the descriptors that came with it. OSError: what the method raised; EPIPE: nobody answers."""
    try:
        _send(sock, pickle.dumps((method, arguments)), descriptors)
        body, came = _receive(sock, _ANSWER_BYTES_MAX)
    except (OSError, EOFError) as error:
        what = f"the workers' process does not answer: {error}"
        raise OSError(errno.EPIPE, what) from error
    answer = msgspec.msgpack.decode(body, type=Answer)
    if answer.error:
        raise OSError(answer.error, answer.text)
    return answer.result, came


def serve(sock: socket.socket, find: Callable[[str], Callable[..., Any]]) -> None:
    """Answers calls until the caller has gone. A method gets the descriptors that came as its first argument, and
    returns its result and the descriptors that go with it."""
    while True:
        try:
            body, came = _receive(sock, _ANSWER_BYTES_MAX)
        except EOFError:
            return
        method, arguments = pickle.loads(body)  # of the supervisor, which has more rights than we
        descriptors: Sequence[int] = ()
        try:
            result, descriptors = find(method)(came, *arguments)
            answer = Answer(0, "", result)
        except OSError as error:
            answer = Answer(error.errno or errno.EIO, error.strerror or str(error), None)
        except Exception as error:  # a mistake of ours; no traceback, which would read files
            answer = Answer(errno.EPROTO, f"{method}: {type(error).__name__}: {error}", None)
        _send(sock, msgspec.msgpack.encode(answer), descriptors)


def _send(sock: socket.socket, body: bytes, descriptors: Sequence[int]) -> None:
    if len(descriptors) > _DESCRIPTORS_MAX:
        raise OSError(errno.E2BIG, f"{len(descriptors)} descriptors in one call; {_DESCRIPTORS_MAX} may be")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([_HEAD.pack(len(body))], rights)
    sock.sendall(body)


def _receive(sock: socket.socket, bytes_max: int) -> tuple[bytearray, list[int]]:
    head, ancillary, _, _ = sock.recvmsg(_HEAD.size, socket.CMSG_SPACE(4 * _DESCRIPTORS_MAX), socket.MSG_CMSG_CLOEXEC)
    came = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            came.frombytes(data[: len(data) - len(data) % came.itemsize])
    if len(head) < _HEAD.size:
        raise EOFError("it has ended")
    (length,) = _HEAD.unpack(head)
    if length > bytes_max:
        raise OSError(errno.EMSGSIZE, f"{length} bytes in one message")
    body = bytearray(length)
    view = memoryview(body)
    while view:
        n = sock.recv_into(view)
        if not n:
            raise EOFError("it broke off")
        view = view[n:]
    return body, list(came)
