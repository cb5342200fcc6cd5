"""Socket addresses: Python's tuples to and from `struct sockaddr`, with the forms and the errors of the
socket module.

AF_INET: `(host, port)`; AF_INET6: `(host, port[, flowinfo[, scope_id]])`. A host may be a name, which the device looks
up if the proxy supports that; "" is any address. An IPv6 scope names an interface of the device, where the TCP socket
is.
"""

from __future__ import annotations

from socket import AF_INET, AF_INET6, SOCK_STREAM, htonl, htons, inet_ntop, inet_pton
from struct import Struct
from typing import Any

from . import _names
from ._arguments import c_int, c_unsigned
from ._errors import check
from ._native import ffi

#: Result of the functions here and of `socket`: a tuple as above, or None for no address.
Address = tuple[str, int] | tuple[str, int, int, int]

#: Room for any address: sizeof(struct sockaddr_storage).
ROOM = 128

_SOCKADDR_IN = Struct("=HH4s8x")
_SOCKADDR_IN6 = Struct("=HHI16sI")
_FORMS = {AF_INET: "a pair (host, port)", AF_INET6: "a tuple (host, port[, flowinfo[, scopeid]])"}


def encode(family: int, address: Any, call: str) -> bytes:
    """The sockaddr of a tuple. Raises TypeError, OverflowError, socket.gaierror; `call` is for their
    messages."""
    if family not in _FORMS:
        raise OSError(f"{call}: bad family")
    if not isinstance(address, tuple):
        name = "AF_INET" if family == AF_INET else "AF_INET6"
        raise TypeError(f"{call}(): {name} address must be tuple, not {type(address).__name__}")
    if family == AF_INET:
        if len(address) != 2:
            raise TypeError(f"{call}(): AF_INET address must be {_FORMS[AF_INET]}")
        host, port = _encoded(address[0]), _port(address[1], call)
        packed = _resolve(family, host)
        return _SOCKADDR_IN.pack(AF_INET, htons(_in_range(port, call)), packed)
    if not 2 <= len(address) <= 4:
        raise TypeError(f"{call}(): AF_INET6 address must be {_FORMS[AF_INET6]}")
    host, port = _encoded(address[0]), _port(address[1], call)
    flowinfo, scope_id = map(c_unsigned, (*address[2:], 0, 0)[:2])
    packed = _resolve(family, host)
    port = _in_range(port, call)
    if flowinfo > 0xFFFFF:
        raise OverflowError(f"{call}(): flowinfo must be 0-1048575.")
    return _SOCKADDR_IN6.pack(AF_INET6, htons(port), htonl(flowinfo), packed, scope_id)


def decode(sockaddr: bytes) -> Address | None:
    """The tuple of a sockaddr as the library wrote it; None for an empty one."""
    family = int.from_bytes(sockaddr[:2], "little")
    if family == AF_INET and len(sockaddr) >= _SOCKADDR_IN.size:
        _, port, packed = _SOCKADDR_IN.unpack_from(sockaddr)
        return inet_ntop(AF_INET, packed), htons(port)
    if family == AF_INET6 and len(sockaddr) >= _SOCKADDR_IN6.size:
        _, port, flowinfo, packed, scope_id = _SOCKADDR_IN6.unpack_from(sockaddr)
        return inet_ntop(AF_INET6, packed), htons(port), htonl(flowinfo), scope_id
    return None


def asked(function: Any, s: int) -> Any:
    """Calls getsockname or getpeername for a socket number, and decodes the result. Raises OSError."""
    sockaddr = ffi.new("char[]", ROOM)
    length = ffi.new("unsigned int *", ROOM)
    check(function(s, sockaddr, length))
    return decode(ffi.unpack(sockaddr, min(length[0], ROOM)))


def _port(port: Any, call: str) -> int:
    """As an int of C: its range is looked at later, as in the standard module, after the host."""
    try:
        return c_int(port)
    except OverflowError:
        raise OverflowError(f"{call}(): port must be 0-65535.") from None


def _in_range(port: int, call: str) -> int:
    if not 0 <= port <= 0xFFFF:
        raise OverflowError(f"{call}(): port must be 0-65535.")
    return port


def _encoded(host: Any) -> bytes:
    """The name of a host as it is looked up. TypeError."""
    if isinstance(host, str):
        try:
            name = host.encode() if host.isascii() else host.encode("idna")
        except UnicodeError:
            raise TypeError("encoding of hostname failed") from None
    elif isinstance(host, bytes | bytearray):
        name = bytes(host)
    else:
        raise TypeError(f"str, bytes or bytearray expected, not {type(host).__name__}")
    if b"\0" in name:
        raise TypeError("host name must not contain null character")
    return name


def _resolve(family: int, host: bytes) -> bytes:
    """The packed address of a host; blocks while a name is resolved. socket.gaierror."""
    if not host:
        return bytes(4 if family == AF_INET else 16)
    if family == AF_INET and host == b"<broadcast>":
        return b"\xff" * 4
    try:
        return inet_pton(family, host.decode("ascii"))
    except (OSError, UnicodeDecodeError):
        resolved = str(_names.getaddrinfo(host, None, family, SOCK_STREAM)[0][4][0])
        return inet_pton(family, resolved.partition("%")[0])
