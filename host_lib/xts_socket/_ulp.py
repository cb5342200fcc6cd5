"""Pushing protocols, and the proxy's reports about them: `ulps()`, errors, information. For `socket`, see _pushing.py.

A push is an ioctl (xts.h, SIOC_PUSH_ULP) with `struct ulp_info`: which protocol, and its parameters as attributes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any

from xts_messages.wire.ulps import BY_NAME, BY_NUMBER, FAULTS, Item, Type

from ._errors import UlpError, again, check
from ._errors import error as plain_error
from ._native import ffi, lib
from ._pushing import Direction, PushingSocket
from ._tls import TlsConnection
from .layers import Layer, Tls

_HEAD = Struct("=HH")  # of struct ulp_info: ulp_id, ulp_bytes
_TEXT_BYTES = 512
_FAULT_NAMES = {number: name.lower() for name, (number, _, _) in FAULTS.items()}
_PUSH = "push"
#: Faults of TLS for which the standard module raises an error of its own.
_OF_SSL = ("certificate", "handshake", "record", "truncated", "flood")
_OF_TLS = ("certificate", "handshake")
# bytes of each push in a CONNECT without its parameters (the head of a struct ulp_info is shorter)
_CONNECT_PUSH_BYTES = 16
_NOT_BEGUN = (errno.EISCONN, errno.EALREADY, errno.EBADF)
_INTEGERS = (Type.U8, Type.U16, Type.U32, Type.U64)


@dataclass(frozen=True, slots=True)
class Offer:
    """A protocol that the attached proxy offers. `name` as in ULPS.md; None: this library does not know it."""

    name: str | None
    number: int
    version: int
    receive: bool
    send: bool


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """A protocol on a socket. `info`: the items of its table (ULPS.md) that the proxy reports, by name."""

    layer: Layer
    receive: bool
    send: bool
    info: dict[str, int | str | bytes]


@dataclass(frozen=True, slots=True)
class Pushed:
    """A protocol with its parameters, kept with the socket after it was pushed."""

    layer: Layer
    receive: bool
    send: bool


def ulps() -> list[Offer]:
    """The protocols that the attached proxy offers to this process. Attaches; OSError (ENETDOWN) without a proxy."""
    room = lib.XTS_ULP_COUNT
    while True:
        offers = ffi.new("struct xts_ulp_offer[]", room)
        count = check(lib.xts_py_ulps(offers, room))
        if count <= room:
            return [_offer(offers[i]) for i in range(count)]
        room = count


def _offer(raw: Any) -> Offer:
    known = BY_NUMBER.get(raw.ulp_id)
    return Offer(known.name if known else None, raw.ulp_id, raw.version, bool(raw.receive), bool(raw.send))


# --- pushing --------------------------------------------------------------------------------------------------------


def push(sock: PushingSocket, layers: Iterable[Layer], direction: Direction) -> None:
    """Pushes each layer onto the socket; all are checked before the first one is pushed."""
    for pushed, request, info in requests(layers, direction):
        result = lib.xts_py_push(sock._number, request, info, sock._timeout_ms)
        if result < 0:
            result = again(result, lib.xts_py_push, sock._number, request, info)
        if result == -errno.EAGAIN and sock._timeout:
            raise TimeoutError("timed out")
        if result < 0:
            raise _refused(sock._number, pushed.layer, -result)
        sock._layers = (*sock._layers, pushed)


def connect(sock: PushingSocket, address: Any, layers: Iterable[Layer]) -> int:
    """Connects with these layers pushed; returns the errno as connect_ex() does."""
    pushes = requests(layers, "both")
    if (
        sum(_CONNECT_PUSH_BYTES + len(info) for _, _, info in pushes) > lib.XTS_CONNECT_PUSH_BYTES
    ):  # they are too long to travel in one message
        push(sock, (pushed.layer for pushed, _, _ in pushes), "both")
        return sock.connect_ex(address)
    raw = ffi.new("struct xts_ulp_push[]", len(pushes))
    for at, (_, request, info) in zip(raw, pushes, strict=True):
        at.request, at.info = request, ffi.cast("struct ulp_info *", info)
    before, sock._layers = sock._layers, (*sock._layers, *(pushed for pushed, _, _ in pushes))
    code = sock._connect(address, "connect_with", lib.xts_py_ulp_connect, raw, len(pushes))
    if code in _NOT_BEGUN:
        sock._layers = before
    return code


def requests(layers: Iterable[Layer], direction: str) -> list[tuple[Pushed, int, Any]]:
    """Each protocol with its request and its struct ulp_info. TypeError, ValueError for one that cannot be passed."""
    found = []
    for layer, receive, send, parameters in checked(layers, direction):
        request = lib.SIOC_PUSH_ULP if receive and send else lib.SIOC_PUSH_ULP_RX if receive else lib.SIOC_PUSH_ULP_TX
        info = ffi.new("char[]", _HEAD.pack(layer.ulp().number, len(parameters)) + parameters)
        found.append((Pushed(layer, receive, send), request, info))
    return found


def checked(layers: Iterable[Layer], direction: str) -> list[tuple[Layer, bool, bool, bytes]]:
    """(layer, receive, send, parameters) for each. Raises TypeError, ValueError."""
    pushes = [(layer, *_directions(layer, direction), layer.encoded()) for layer in layers]
    if not pushes:
        raise TypeError("push() takes at least one protocol")
    for layer, _, _, parameters in pushes:
        if _HEAD.size + len(parameters) > lib.XTS_ULP_INFO_BYTES_MAX:
            raise ValueError(
                f"{layer.PROTOCOL}: {len(parameters)} bytes of parameters, at most "
                f"{lib.XTS_ULP_INFO_BYTES_MAX - _HEAD.size} can be passed"
            )
    return pushes


def _directions(layer: Layer, direction: str) -> tuple[bool, bool]:
    """(receive, send)"""
    if not isinstance(layer, Layer):
        raise TypeError(f"push() takes protocols of xts_socket, Tls() for instance, not {layer!r}")
    if direction not in ("both", "receive", "send"):
        raise ValueError(f"direction={direction!r}: is none of 'both', 'receive', 'send'")
    ulp = layer.ulp()
    receive, send = direction != "send" and ulp.receive, direction != "receive" and ulp.send
    if not receive and not send:
        raise ValueError(f"{ulp.name} has no {direction} side")
    return receive, send


def _refused(number: int, layer: Layer, code: int) -> OSError:
    if code == errno.ENOPROTOOPT:
        return UlpError(code, f"{layer.PROTOCOL}: the proxy does not offer it to this host (see `xts doctor`)", _PUSH)
    if code == errno.ENOTTY:
        return UlpError(code, f"{layer.PROTOCOL}: this proxy knows no protocols to be pushed", _PUSH)
    found = last_error(number)
    if found is None or found.errno != code:
        return plain_error(code)
    return UlpError(code, f"{layer.PROTOCOL}: {found.strerror}", found.fault)


# --- errors ---------------------------------------------------------------------------------------------------------


def last_error(number: int) -> UlpError | None:
    """The fault that ended the connection, or for which the last push was refused."""
    protocol, fault = ffi.new("unsigned *"), ffi.new("unsigned *")
    text = ffi.new("char[]", _TEXT_BYTES)
    code = check(lib.xts_py_ulp_error(number, protocol, fault, text, _TEXT_BYTES))
    if not code:
        return None
    name = _FAULT_NAMES.get(fault[0], str(fault[0]))
    return _made(code, ffi.string(text).decode("utf-8", "replace") or os.strerror(code), name, protocol[0])


def _made(code: int, text: str, fault: str, protocol: int) -> UlpError:
    """An error of ssl if it is one of TLS, and the standard module would raise one. protocol 0: an older proxy, which
    does not say whose fault it is; a failed handshake is taken for that of TLS then."""
    if (protocol == BY_NAME["TLS"].number and fault in _OF_SSL) or (not protocol and fault in _OF_TLS):
        from ._tls_errors import CertificateError, TlsError

        return (CertificateError if fault == "certificate" else TlsError)(code, text, fault)
    return UlpError(code, text, fault)


def failure(number: int, code: int, connecting: bool) -> OSError:
    """The exception for an errno on a socket with protocols: with their reason, if a protocol is the cause. (Such a
    refusal of a push can come as late as the end of connecting, but not later.)"""
    try:
        found = last_error(number)
    except OSError:
        found = None
    if connecting and code == errno.ENOPROTOOPT and found is None:
        return UlpError(code, "this proxy knows no protocols to be pushed", _PUSH)
    if found is None or found.errno != code or (found.fault == _PUSH and not connecting):
        return plain_error(code)
    return found


# --- information ----------------------------------------------------------------------------------------------------


def read_item(number: int, send: bool, layer: int, item: Item) -> int | str | bytes | None:
    """An item of a layer, counted from TCP in its direction; None: it has no such information."""
    room = 256
    while True:
        value = ffi.new("char[]", room)
        got = lib.xts_py_ulp_tell(number, int(send), layer, item.number, value, room)
        if got == -errno.ENOENT:
            return None
        if check(got) <= room:
            break
        room = got
    raw = bytes(ffi.unpack(value, got))
    if item.type in _INTEGERS:
        return int.from_bytes(raw, "little")
    return raw.decode("utf-8", "replace") if item.type is Type.STRING else raw


def _read_item(sock: PushingSocket, send: bool, layer: int, item: Item) -> int | str | bytes | None:
    return read_item(sock.number, send, layer, item)


def _places(sock: PushingSocket) -> list[tuple[Pushed, bool, int]]:
    """Each protocol of the socket, with a direction and its place in that direction."""
    counts = {False: 0, True: 0}
    found = []
    for pushed in sock._layers:
        found.append((pushed, not pushed.receive, counts[not pushed.receive]))
        for send, there in ((False, pushed.receive), (True, pushed.send)):
            counts[send] += there
    return found


def layer_infos(sock: PushingSocket) -> list[LayerInfo]:
    """The protocols of the socket, with the information about each."""
    return [
        LayerInfo(
            pushed.layer,
            pushed.receive,
            pushed.send,
            {
                item.name.lower(): value
                for item in pushed.layer.ulp().items
                if (value := read_item(sock.number, send, place, item)) is not None
            },
        )
        for pushed, send, place in _places(sock)
    ]


def tls_of(sock: PushingSocket) -> TlsConnection | None:
    """The uppermost TLS of the socket."""
    for pushed, send, place in reversed(_places(sock)):
        if isinstance(pushed.layer, Tls):
            return TlsConnection(sock, pushed.layer, partial(_read_item, sock, send, place))
    return None
