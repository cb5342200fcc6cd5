"""The process and the socket of a captured frame: `xts capture` writes them as its comment, and filters by them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from xts_messages.terminal.printable import printable
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, MalformedFrameError

_BUNDLE = "XTS_LINK_BUNDLE"


#: The name of a file of frames, for XTS_PCAP: the process, its program, and a separator before any number that follows.
FILE_NAME = "%p-%e-"
_FILE_NAME = re.compile(r"([0-9]+)-(.+)-(?:\.[0-9]+)?", re.DOTALL)


def who_writes(file_name: str) -> str:
    """The process that writes a file of frames: "curl (4711)". The file's name says it from the first frame on, and
    still does after the process has ended."""
    found = _FILE_NAME.fullmatch(file_name)
    return f"{printable(found[2])} ({found[1]})" if found else "?"


def frames_in(data: bytes) -> Iterator[Frame]:
    """The frames of a packet: one, or those of a bundle. Malformed ones are left to Wireshark."""
    try:
        frame = codec.decode(data)
    except MalformedFrameError:
        return
    if frame.name != _BUNDLE:
        yield frame
        return
    at = 0
    while at + 2 <= len(frame.payload):
        (size,) = struct.unpack_from(">H", frame.payload, at)
        yield from frames_in(frame.payload[at + 2 : at + 2 + size])
        at += 2 + size


def _text(endpoint: object) -> str:
    if not isinstance(endpoint, Endpoint) or not endpoint.ip_version:
        return ""
    return f"[{endpoint.host}]:{endpoint.port}" if endpoint.ip_version == 6 else f"{endpoint.host}:{endpoint.port}"


@dataclass(slots=True)
class Socket:
    """A socket, as far as frames have described it."""

    number: int = 0
    local: str = ""
    peer: str = ""


@dataclass(slots=True)
class Channel:
    """A link to the proxy, of a process: `who`."""

    who: str = "?"
    _by_host: dict[int, Socket] = field(default_factory=dict)
    _by_proxy: dict[int, Socket] = field(default_factory=dict)

    def sockets(self, data: bytes) -> list[Socket]:
        """The sockets that a packet is about."""
        found: list[Socket] = []
        for frame in frames_in(data):
            socket = self._socket(frame)
            if socket is not None and socket not in found:
                found.append(socket)
        return found

    def comment(self, sockets: list[Socket]) -> str:
        """For people: the process, and its sockets that the packet is about."""
        each = (f"socket {s.number:#x} {s.local or '?'} → {s.peer or '?'}" for s in sockets)
        return "; ".join((self.who, *each))

    def _socket(self, frame: Frame) -> Socket | None:
        if frame.name == "XTS_LINK_HELLO":
            self._by_host, self._by_proxy = {}, {}
        sender = frame.name.split("_")[1]
        if sender not in ("CMD", "REPLY") or frame.message.id_of is None:
            return None
        mine = frame.fields.get("xts_socket", 0) if sender == "CMD" else frame.id
        theirs = frame.id if sender == "CMD" else frame.fields.get("proxy_id", 0)
        if frame.name == "XTS_REPLY_NEWCONN":
            mine = 0  # the listener's
        return self._known(int(str(mine)), int(str(theirs)), frame)

    def _known(self, mine: int, theirs: int, frame: Frame) -> Socket | None:
        if not mine and not theirs:
            return None
        socket = self._by_proxy.get(theirs) or self._by_host.get(mine) or Socket()
        if mine:
            self._by_host[mine] = socket
            socket.number = mine
        if theirs:
            self._by_proxy[theirs] = socket
        socket.local = _text(frame.fields.get("local")) or socket.local
        socket.peer = _text(frame.fields.get("peer")) or socket.peer
        return socket


def wanted(channel: Channel, sockets: list[Socket], words: str) -> bool:
    """Without words everything; else frames of a socket that matches all of them, and frames that open the link."""
    if not words:
        return True
    texts = [f"{channel.who} {s.number:#x} {s.local} {s.peer}".lower() for s in sockets]
    return any(all(word in text for word in words.lower().split()) for text in texts)


def opens_link(data: bytes) -> bool:
    """HELLO and its answer: without them no other frame can be interpreted."""
    return len(data) > table.ETH_BYTES and codec.BY_CODE.get(data[table.ETH_BYTES], None) in (
        codec.BY_NAME["XTS_LINK_HELLO"],
        codec.BY_NAME["XTS_LINK_HELLO_ACK"],
    )
