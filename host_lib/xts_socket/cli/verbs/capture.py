"""`xts capture`: runs a command, and writes what its sockets send and receive for Wireshark.

The library of each process writes its frames to a file of its own (XTS_PCAP), whose name says which process it is. The
files are read as they grow, and joined into one file with the names of processes and sockets; what has been read is
freed on the disk.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..capturing.capture_filter import FILE_NAME, Channel, opens_link, wanted, who_writes
from ..capturing.pcapng import Writer
from ..options import add_verb

_HEAD_BYTES, _RECORD_BYTES, _FRAME_BYTES_MAX = 24, 16, 1 << 17
_READ_BYTES = 1 << 20
_LOOK_S = 0.05
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01
_MIB = 1 << 20


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "capture", "xts capture --output shop.pcapng -- xts run -- curl http://198.18.0.2/", run)
    parser.add_argument(
        "--output", metavar="FILE", type=Path, required=True, help="the file to write (pcapng); it must not exist yet"
    )
    parser.add_argument(
        "--socket",
        metavar="WORDS",
        default="",
        help="only sockets whose program, process, number or addresses contain these words",
    )
    parser.add_argument(
        "--ring-files",
        metavar="N",
        type=_count,
        default=0,
        help="write a series of numbered files and keep the last N of them (default: one file)",
    )
    parser.add_argument(
        "--ring-mib",
        metavar="MIB",
        type=_count,
        default=64,
        help="with --ring-files: size of each file in MiB (default: 64)",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the command and its arguments"
    )
    parser.epilog = (
        f"{parser.epilog}\n\nThe file has the payload as the program sent it: without TLS, if TLS is pushed. It has no "
        "keys.\nThe exit status is the command's."
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError("must be a number from 1 to 1000000")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise OSError("nothing to run: xts capture --output FILE -- COMMAND")
    writer = Writer(arguments.output, arguments.ring_files, arguments.ring_mib * _MIB if arguments.ring_files else 0)
    try:
        with tempfile.TemporaryDirectory(prefix="xts-capture-") as folder:
            status = _run(command, Path(folder), Capture(Path(folder), writer, arguments.socket))
    finally:
        writer.close()
    if writer.failure:
        print(f"xts: the capture ends early: {writer.failure}; {writer.lost} packets are not in it", file=sys.stderr)
    print(f"xts: {writer.written} packets in {arguments.output}", file=sys.stderr)
    return status


def _run(command: list[str], folder: Path, capture: Capture) -> int:
    environment = os.environ | {"XTS_PCAP": f"{folder}/".replace("%", "%%") + FILE_NAME}
    # Ctrl-C is for the command. Uses a handler, since a child would inherit SIG_IGN.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        with subprocess.Popen(command, env=environment) as process:
            while process.poll() is None:
                if not capture.look():
                    time.sleep(_LOOK_S)
        while capture.look():
            pass
    except FileNotFoundError as error:
        raise OSError(error.errno, f"{command[0]}: {error.strerror}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


@dataclass(slots=True)
class Source:
    """A file that a library writes, open only while it is read: a command may have thousands of processes. OSError: it
    is not such a file."""

    path: Path
    number: int  # number of its interface
    channel: Channel
    at: int = 0
    punched: int = 0

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Time and frame of the records that are complete since the last call, from at most _READ_BYTES."""
        data = self._read()
        offset = 0
        if not self.at:
            if len(data) < _HEAD_BYTES:
                return
            offset = _HEAD_BYTES
        while offset + _RECORD_BYTES <= len(data):
            seconds, nanoseconds, size, _ = struct.unpack_from("=IIII", data, offset)
            if size > _FRAME_BYTES_MAX:
                raise OSError(f"a record of {size} bytes in a capture")
            end = offset + _RECORD_BYTES + size
            if end > len(data):
                break
            yield seconds * 10**9 + nanoseconds, data[offset + _RECORD_BYTES : end]
            offset = end
        self.at += offset

    def _read(self) -> bytes:
        """What follows. Nothing is opened where nothing is new."""
        if self.path.lstat().st_size <= self.at:
            return b""
        with self._opened(os.O_RDONLY) as fd:
            return os.pread(fd, _READ_BYTES, self.at)

    @contextmanager
    def _opened(self, how: int) -> Iterator[int]:
        fd = os.open(self.path, how | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            yield fd
        finally:
            os.close(fd)

    def give_back(self) -> None:
        """Frees what has been read on the disk, if the file system supports that."""
        if self.at - self.punched < _MIB:
            return
        length = self.at - self.punched
        with self._opened(os.O_WRONLY) as fd:
            _LIBC.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(self.punched), ctypes.c_long(length))
        self.punched = self.at


_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Capture:
    """Copies all files of a folder to one writer."""

    folder: Path
    writer: Writer
    words: str = ""
    _sources: dict[str, Source] = field(default_factory=dict)

    def look(self) -> bool:
        """Copies new records; was there anything?"""
        for path in sorted(self.folder.iterdir()):
            if path.name not in self._sources:
                self._sources[path.name] = Source(path, -1, Channel(who_writes(path.name)))
        return any([self._take(source) for source in self._sources.values()])

    def _take(self, source: Source) -> bool:
        took = False
        for at_ns, data in source.records():
            took = True
            sockets = source.channel.sockets(data)
            if source.number < 0:
                source.number = self.writer.add_interface(source.channel.who)
            if opens_link(data) or wanted(source.channel, sockets, self.words):
                self.writer.write(source.number, at_ns, data, source.channel.comment(sockets))
        source.give_back()
        return took
