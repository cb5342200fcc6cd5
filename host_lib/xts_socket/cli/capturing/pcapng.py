"""Writes capture files in the format of Wireshark (pcapng): packets of several interfaces, with comments, in one file
or in a ring of files.

A full disk ends the capture, not the program: the file keeps its complete blocks, and lost packets are counted.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from xts_messages.settings.file_failure import not_made

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_ORDER, _ETHERNET = 0x1A2B3C4D, 1
_COMMENT, _IF_NAME, _IF_TSRESOL, _USERAPPL = 1, 2, 9, 4
_NANOSECONDS = 9
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes, options: bytes = b"") -> bytes:
    if options:
        options += _option(0, b"")
    size = 12 + len(body) + len(options)
    return struct.pack("=II", kind, size) + body + options + struct.pack("=I", size)


def section(program: str) -> bytes:
    """The block at the beginning of a file."""
    return _block(_SECTION, struct.pack("=IHHq", _ORDER, 1, 0, -1), _option(_USERAPPL, program.encode()))


def interface(name: str) -> bytes:
    """The block of an interface with Ethernet frames, with times in nanoseconds."""
    options = _option(_IF_NAME, name.encode()) + _option(_IF_TSRESOL, bytes([_NANOSECONDS]))
    return _block(_INTERFACE, struct.pack("=HHI", _ETHERNET, 0, 0), options)


def packet(number: int, at_ns: int, data: bytes, comment: str) -> bytes:
    """A packet of the interface of this number."""
    head = struct.pack("=IIIII", number, at_ns >> 32, at_ns & 0xFFFFFFFF, len(data), len(data))
    return _block(_PACKET, head + data + bytes(-len(data) % 4), _option(_COMMENT, comment.encode()) if comment else b"")


@dataclass(slots=True)
class Writer:
    """`path`: of the only file; in a ring (`files` of at most `file_bytes` each) a number is appended to its name.
    OSError: the first one cannot be made."""

    path: Path
    files: int = 0
    file_bytes: int = 0
    written: int = 0  # packets
    lost: int = 0
    failure: str = ""
    _fd: int = -1
    _at: int = 0
    _number: int = 0
    _interfaces: list[str] = field(default_factory=list)
    _there: deque[Path] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        """Opens the next file, with all interfaces so far; removes the oldest if there are too many."""
        path = self.path
        if self.files:
            self._number += 1
            path = path.with_name(f"{path.stem}-{self._number:05}{path.suffix}")
        try:
            fd = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise OSError(error.errno, not_made(path, error)) from error
        self.close()
        self._fd, self._at = fd, 0
        self._there.append(path)
        if self.files and len(self._there) > self.files:
            self._there.popleft().unlink(missing_ok=True)
        self._write(section("xts capture") + b"".join(interface(name) for name in self._interfaces))

    def add_interface(self, name: str) -> int:
        """Its number, for write()."""
        self._interfaces.append(name)
        self._try(interface(name))
        return len(self._interfaces) - 1

    def write(self, number: int, at_ns: int, data: bytes, comment: str) -> None:
        """Writes a packet; counts it as lost after a file could not be written."""
        block = packet(number, at_ns, data, comment)
        if self.files and self._at + len(block) > self.file_bytes and not self.failure:
            try:
                self._open()
            except OSError as error:
                self.failure = error.strerror or str(error)
        if self._try(block):
            self.written += 1
        else:
            self.lost += 1

    def _try(self, block: bytes) -> bool:
        if self.failure:
            return False
        try:
            self._write(block)
        except OSError as error:
            self.failure = f"{self._there[-1]}: {error.strerror}"
            return False
        return True

    def _write(self, block: bytes) -> None:
        """Writes all of it, or nothing."""
        done = 0
        try:
            while done < len(block):
                done += os.write(self._fd, block[done:])
        except OSError:
            os.ftruncate(self._fd, self._at)
            raise
        self._at += len(block)

    def close(self) -> None:
        """May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
