"""The functions of module `os` on descriptors of offloaded sockets, while install() or offload() is in force.

Theory of operation. The descriptor of an offloaded socket only shows its readiness (native/waiting/mirror.c): the
kernel refuses what is written to it. A program that has called detach() or fileno() and goes on with os.read(),
os.write(), os.fdopen() or os.sendfile() means the socket. So these find the socket by the descriptor, and are
otherwise the standard ones. asyncio's connect_read_pipe() and connect_write_pipe(), multiprocessing's connections and
the like follow. C code that reads or writes the descriptor itself does not, and gets the kernel's refusal.

As on a kernel descriptor, they wait if the socket has no timeout, and otherwise raise BlockingIOError.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Sequence
from fcntl import F_GETFL, F_SETFL
from typing import Any

from ._arguments import c_ssize
from ._descriptor import close as close_socket
from ._descriptor import number_behind, number_of
from ._errors import check, error, waiting
from ._message import Message, memory_of
from ._native import ffi, lib
from ._sendfile_offset import check_offset

_SENDFILE_BYTES = 262144
_STANDARD: dict[str, Callable[..., Any]] = {
    name: getattr(os, name)
    for name in ("close", "fdopen", "get_blocking", "read", "readv", "sendfile", "set_blocking", "write", "writev")
}
_kernels = _STANDARD.__getitem__

#: For Popen().
_REFUSED = (
    "an offloaded socket cannot be a program's standard input or output, for its descriptor only shows readiness: "
    "copy the data through a pipe (subprocess.PIPE), or start this program with `xts run`"
)


def read(fd: int, length: int, /) -> bytes:
    """os.read(): also of an offloaded socket."""
    number = number_of(fd)
    if number is None:
        return bytes(_kernels("read")(fd, length))
    length = c_ssize(length)
    if length < 0:
        raise error(errno.EINVAL)
    if not length:
        return b""
    buffer = ffi.new("char[]", min(length, _SENDFILE_BYTES))
    return bytes(ffi.unpack(buffer, waiting(lib.xts_py_recv, number, buffer, len(buffer), 0, -1)))


def write(fd: int, data: Any, /) -> int:
    """os.write(): also to an offloaded socket."""
    number = number_of(fd)
    if number is None:
        return int(_kernels("write")(fd, data))
    with memory_of(data, False) as view:
        return waiting(lib.xts_py_send, number, view, len(view), 0, -1)


def readv(fd: int, buffers: Sequence[Any], /) -> int:
    """os.readv(): also of an offloaded socket."""
    number = number_of(fd)
    return int(_kernels("readv")(fd, buffers)) if number is None else _moved(lib.xts_py_recvmsg, number, buffers, True)


def writev(fd: int, buffers: Sequence[Any], /) -> int:
    """os.writev(): also to an offloaded socket."""
    number = number_of(fd)
    return (
        int(_kernels("writev")(fd, buffers)) if number is None else _moved(lib.xts_py_sendmsg, number, buffers, False)
    )


def _moved(function: Callable[..., int], number: int, buffers: Sequence[Any], writable: bool) -> int:
    message = Message(buffers, b"", b"", writable)
    try:
        return waiting(function, number, message.header, 0, -1)
    finally:
        message.release()


def sendfile(out_fd: int, in_fd: int, offset: int | None, count: int, *rest: Any, **named: Any) -> int:
    """os.sendfile(): also to an offloaded socket, for which the data is copied."""
    number = number_of(out_fd)
    if number is None:
        return int(_kernels("sendfile")(out_fd, in_fd, offset, count, *rest, **named))
    at = os.lseek(in_fd, 0, os.SEEK_CUR) if offset is None else offset
    check_offset(in_fd, at, count)
    if not (data := os.pread(in_fd, min(count, _SENDFILE_BYTES), at)):
        return 0
    sent = waiting(lib.xts_py_send, number, data, len(data), 0, -1)
    if offset is None:
        os.lseek(in_fd, at + sent, os.SEEK_SET)
    return sent


def close(fd: int) -> None:
    """os.close(): closes an offloaded socket, too."""
    if number_of(fd) is None:
        _kernels("close")(fd)
    else:
        close_socket(fd)


def set_blocking(fd: int, blocking: bool, /) -> None:
    """os.set_blocking(): of an offloaded socket, whether it waits."""
    number = number_of(fd)
    if number is None:
        _kernels("set_blocking")(fd, blocking)
    else:
        check(lib.xts_py_fcntl(number, F_SETFL, 0 if blocking else os.O_NONBLOCK))


def get_blocking(fd: int, /) -> bool:
    """os.get_blocking(): of an offloaded socket, whether it waits."""
    number = number_of(fd)
    if number is None:
        return bool(_kernels("get_blocking")(fd))
    return not check(lib.xts_py_fcntl(number, F_GETFL, 0)) & os.O_NONBLOCK


class _File(io.RawIOBase):
    """A file over the descriptor of an offloaded socket."""

    def __init__(self, fd: int, mode: str, closefd: bool) -> None:
        self._fd, self.mode, self._closefd = fd, mode, closefd

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return "r" in self.mode

    def writable(self) -> bool:
        return "r" not in self.mode

    def readinto(self, buffer: Any) -> int | None:
        try:
            data = read(self._fd, len(buffer))
        except BlockingIOError:
            return None
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int | None:
        try:
            return write(self._fd, data)
        except BlockingIOError:
            return None

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._closefd:
                close(self._fd)


def fdopen(  # noqa: PLR0917 - as in os
    fd: int,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    *rest: Any,
) -> Any:
    """os.fdopen(): also over an offloaded socket."""
    if not isinstance(fd, int) or number_of(fd) is None:
        return _kernels("fdopen")(fd, mode, buffering, encoding, errors, newline, closefd, *rest)
    if "+" in mode or not set(mode) <= set("rwatb"):
        raise io.UnsupportedOperation("File or stream is not seekable.")
    raw = _File(fd, mode, closefd)
    if not buffering and "b" in mode:
        return raw
    if not buffering:
        raise ValueError("can't have unbuffered text I/O")
    size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 1) else buffering
    file: Any = io.BufferedReader(raw, size) if raw.readable() else io.BufferedWriter(raw, size)
    if "b" in mode:
        return file
    return io.TextIOWrapper(file, io.text_encoding(encoding), errors, newline, buffering == 1)


#: What install() puts into module `os`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "close": close,
    "fdopen": fdopen,
    "get_blocking": get_blocking,
    "read": read,
    "readv": readv,
    "sendfile": sendfile,
    "set_blocking": set_blocking,
    "write": write,
    "writev": writev,
}


def refusing(start: Callable[..., None]) -> Callable[..., None]:
    """subprocess.Popen.__init__, with a refusal of what the program could not use: without it, what it writes would
    be refused, and what it reads would be nothing. OSError (EOPNOTSUPP)."""

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        for given in (*arguments[3:6], *(named.get(name) for name in ("stdin", "stdout", "stderr"))):
            if given is not None and not (isinstance(given, int) and given < 0) and _only_shows(given):
                raise OSError(errno.EOPNOTSUPP, _REFUSED)
        start(self, *arguments, **named)

    init.__name__, init.__qualname__, init.__doc__ = start.__name__, start.__qualname__, start.__doc__
    return init


def _only_shows(given: Any) -> bool:
    """Is it an offloaded socket that the program cannot take over? It can where set_inheritable(True) was called."""
    fd = given if isinstance(given, int) else given.fileno() if hasattr(given, "fileno") else -1
    return fd >= 0 and number_behind(fd)[0] is not None and not os.get_inheritable(fd)
