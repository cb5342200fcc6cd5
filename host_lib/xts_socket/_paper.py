"""The functions of the paper by name (Herbert, "TCP and ULP Offload via AF_XDP Sockets", "Application API"),
over numbers.

Arguments and results have the forms Python's socket module uses: addresses are tuples, data is bytes, errors
are OSError. A call interrupted by a signal is made again after Python's signal handlers have run; there are
no timeouts (make the socket non-blocking and poll, or use `socket`). For C see xts.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET, SO_DOMAIN, SOCK_CLOEXEC, SOCK_STREAM, SOL_SOCKET
from typing import Any

from . import _message
from ._address import ROOM, Address, asked, decode, encode
from ._errors import check, waiting
from ._native import ffi, lib

_BLOCKING = -1  # the library waits, if the socket is blocking


def xts_socket(domain: int = AF_INET, type: int = SOCK_STREAM, protocol: int = 0) -> int:
    """A new socket's number; socket(2). ENETDOWN: no proxy can be reached."""
    return check(lib.xts_py_socket(domain, type | SOCK_CLOEXEC, protocol))


def xts_close(s: int) -> None:
    """close(2)"""
    check(lib.xts_py_close(s))


def xts_ioctl(s: int, request: int, argument: int | bytes | bytearray = 0) -> int | bytes:
    """ioctl(2): an int is passed by value, and the result returned; bytes are passed in, and returned as changed by the
    call."""
    if isinstance(argument, int):
        return check(lib.xts_py_ioctl_int(s, request, argument))
    memory = ffi.new("char[]", bytes(argument))
    check(lib.xts_py_ioctl(s, request, memory))
    return bytes(ffi.unpack(memory, len(argument)))


def xts_fcntl(s: int, command: int, argument: int = 0) -> int:
    """fcntl(2): F_GETFL, F_SETFL (O_NONBLOCK) and other commands that the library supports."""
    return check(lib.xts_py_fcntl(s, command, argument))


def xts_getsockopt(s: int, level: int, option: int, length: int | None = None) -> int | bytes:
    """getsockopt(2): an int, or with `length` at most that many bytes."""
    if length is None:
        value = ffi.new("int *")
        check(lib.xts_py_getsockopt_int(s, level, option, value))
        return int(value[0])
    memory = ffi.new("char[]", length)
    room = ffi.new("unsigned int *", length)
    check(lib.xts_py_getsockopt(s, level, option, memory, room))
    return bytes(ffi.unpack(memory, min(room[0], length)))


def xts_setsockopt(s: int, level: int, option: int, value: int | bytes) -> None:
    """setsockopt(2)"""
    if isinstance(value, int):
        check(lib.xts_py_setsockopt_int(s, level, option, value))
    else:
        check(lib.xts_py_setsockopt(s, level, option, value, len(value)))


def xts_bind(s: int, address: Any) -> None:
    """bind(2), on the device"""
    sockaddr = _sockaddr(s, address, "xts_bind")
    check(lib.xts_py_bind(s, sockaddr, len(sockaddr)))


def xts_connect(s: int, address: Any) -> None:
    """connect(2). BlockingIOError (EINPROGRESS) on a non-blocking socket; InterruptedError after a signal: the attempt
    continues."""
    sockaddr = _sockaddr(s, address, "xts_connect")
    check(lib.xts_py_connect(s, sockaddr, len(sockaddr)))


def xts_listen(s: int, backlog: int) -> None:
    """listen(2)"""
    check(lib.xts_py_listen(s, backlog))


def xts_accept(s: int) -> tuple[int, Address | None]:
    """accept(2): (number of the new socket, address of its peer)."""
    sockaddr = ffi.new("char[]", ROOM)
    length = ffi.new("unsigned int *", ROOM)
    number = waiting(lib.xts_py_accept, s, sockaddr, length, _BLOCKING)
    return number, decode(ffi.unpack(sockaddr, min(length[0], ROOM)))


def xts_send(s: int, data: Any, flags: int = 0) -> int:
    """send(2): how many bytes were taken."""
    view = ffi.from_buffer("char[]", data)
    return waiting(lib.xts_py_send, s, view, len(view), flags, _BLOCKING)


def xts_sendto(s: int, data: Any, flags: int, address: Any) -> int:
    """sendto(2): on TCP, send(2)."""
    view = ffi.from_buffer("char[]", data)
    sockaddr = _sockaddr(s, address, "xts_sendto")
    return waiting(lib.xts_py_sendto, s, view, len(view), flags, sockaddr, len(sockaddr), _BLOCKING)


def xts_sendmsg(s: int, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0) -> int:
    """sendmsg(2): how many bytes were taken."""
    message = _message.Message(buffers, _message.pack_ancillary(ancdata), b"", False)
    return waiting(lib.xts_py_sendmsg, s, message.header, flags, _BLOCKING)


def xts_recv(s: int, size: int, flags: int = 0) -> bytes:
    """recv(2): at most `size` bytes; b"" at the end of the stream."""
    memory = ffi.new("char[]", size)
    got = waiting(lib.xts_py_recv, s, memory, size, flags, _BLOCKING)
    data: bytes = ffi.unpack(memory, got)
    return data


def xts_recvfrom(s: int, size: int, flags: int = 0) -> tuple[bytes, Address | None]:
    """recvfrom(2): on TCP the address is None."""
    memory = ffi.new("char[]", size)
    sockaddr = ffi.new("char[]", ROOM)
    length = ffi.new("unsigned int *", ROOM)
    got = waiting(lib.xts_py_recvfrom, s, memory, size, flags, sockaddr, length, _BLOCKING)
    return ffi.unpack(memory, got), decode(ffi.unpack(sockaddr, min(length[0], ROOM)))


def xts_recvmsg(s: int, buffers: Iterable[Any], ancbytes: int = 0, flags: int = 0) -> tuple[int, list[Any], int]:
    """recvmsg(2) into writable buffers: (how many bytes, ancillary data, flags of the message)."""
    message = _message.Message(buffers, ancbytes, None, True)
    got = waiting(lib.xts_py_recvmsg, s, message.header, flags, _BLOCKING)
    return got, message.ancillary(), message.header.msg_flags


def xts_getsockname(s: int) -> Any:
    """getsockname(2): the address on the device."""
    return asked(lib.xts_py_getsockname, s)


def xts_getpeername(s: int) -> Any:
    """getpeername(2)"""
    return asked(lib.xts_py_getpeername, s)


def xts_epoll_ctx_create() -> Any:
    """A polling context; xts_epoll_ctx_destroy() ends it. `epoll` is the same as a class."""
    ctx = lib.xts_epoll_ctx_create_flags(0)
    if not ctx:
        raise MemoryError("no polling context")
    return ctx


def xts_epoll_ctx_destroy(ectx: Any) -> None:
    """Ends a polling context; the sockets in it stay open."""
    lib.xts_epoll_ctx_destroy(ectx)


def xts_epoll_ctl(ectx: Any, op: int, s: int, events: int = 0) -> None:
    """epoll_ctl(2): op is 1 (EPOLL_CTL_ADD), 2 (_DEL) or 3 (_MOD)."""
    check(lib.xts_py_epoll_ctl(ectx, op, s, events))


def xts_epoll(ectx: Any, maxevents: int = 64) -> list[tuple[int, int]]:
    """The events that are ready now, (socket number, events) for each; never blocks."""
    pairs = ffi.new("int32_t[]", 2 * maxevents)
    flat = ffi.unpack(pairs, 2 * check(lib.xts_py_epoll_now(ectx, pairs, maxevents)))
    return list(zip(flat[::2], flat[1::2], strict=True))


def xts_fileno(s: int) -> int:
    """A kernel descriptor that mirrors the socket's readiness; the socket owns it. Not in the paper."""
    return check(lib.xts_py_fileno(s))


def _sockaddr(s: int, address: Any, call: str) -> bytes:
    return encode(int(xts_getsockopt(s, SOL_SOCKET, SO_DOMAIN)), address, call)
