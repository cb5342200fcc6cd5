"""This process's sockets for `xts status --processes`, after install(): the page that the interposer makes
(preload/process_page.h), written from Python. A socket without a kernel descriptor (an accepted one) is only counted.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from socket import AF_INET, AF_INET6, inet_pton
from typing import Any

from ._environment import DEFAULT_ENDPOINT, setting
from ._native import ffi, lib

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
UNDECIDED, STAYED, OFFLOADED = 1, 2, 3  # enum descriptor_kind

#: Path of the attach socket given to configure(); None: according to the environment.
_endpoint: str | None = None
_page: Any = None  # struct xts_report_page, over the memory of a memfd
_memory: mmap.mmap | None = None
_counts: Any = ffi.new("uint64_t[]", int(lib.XTS_REASON_COUNT))  # sockets by reason; 0: offloaded


def start(rules: str, strict: bool) -> None:
    """Makes the page, or updates its rules. Without a descriptor for it there is none: sockets are more important."""
    global _page, _memory  # noqa: PLW0603 - one of the process
    if _page is None:
        size = ffi.sizeof("struct xts_report_page")
        fd = -1
        try:
            fd = os.memfd_create("xts-preload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            _memory = mmap.mmap(fd, size)
        except OSError:
            if fd >= 0:
                os.close(fd)
            return
        _page = ffi.from_buffer("struct xts_report_page *", _memory, True)
        _page.version, _page.entries, _page.pid = lib.XTS_REPORT_VERSION, lib.XTS_REPORT_ENTRIES, os.getpid()
        program = os.fsencode(sys.orig_argv[0].rpartition("/")[2])
        _page.program = program[:31]
    _page.endpoint = os.fsencode(_endpoint or _endpoint_of_environment())[:111]
    _page.rules, _page.strict = os.fsencode(rules)[:255], strict
    _page.magic = lib.XTS_REPORT_MAGIC
    lib.xts_control_start()


def _endpoint_of_environment() -> str:
    """Chosen as in messages/native/attaching/attach.c."""
    queue = setting("XTS_QUEUE") or ""
    return queue.removeprefix("shm:") or setting("XTS_ENDPOINT") or DEFAULT_ENDPOINT


def attached_at(endpoint: str | None) -> None:
    """This process is attached, or will attach, there; None: according to the environment."""
    global _endpoint  # noqa: PLW0603 - one of the process
    _endpoint = endpoint
    if _page is not None:
        _page.endpoint = os.fsencode(endpoint or _endpoint_of_environment())[:111]


def count(reason: int, total: int) -> None:
    """The number of sockets with this reason; 0: offloaded."""
    if _page is None:
        return
    if reason:
        _page.stayed[reason] = total
    else:
        _page.offloaded = total
    _counts[reason] = total
    lib.xts_publish_counts(_counts, len(_counts))


def attach_failed(why: str) -> None:
    """Why this process could not attach, the last time that this kept a socket with the kernel."""
    if _page is not None:
        _page.attach_error = why.encode()[:255]


def decided(fd: int, kind: int, *, reason: int, line: int, number: int, local: Any, peer: Any) -> None:
    """The decision about the socket at a descriptor, the line of the rules that made it, and the addresses."""
    if _page is None or not 0 <= fd < lib.XTS_REPORT_ENTRIES:
        return
    entry = _page.entry[fd]
    entry.kind = 0
    entry.flags, entry.reason, entry.rule_line, entry.number = 0, reason, line, number
    _write(entry.local, local)
    _write(entry.peer, peer)
    entry.kind = kind


def closed(fd: int) -> None:
    if _page is not None and 0 <= fd < lib.XTS_REPORT_ENTRIES:
        _page.entry[fd].kind = 0


def _write(endpoint: Any, address: Any) -> None:
    if address is None:
        endpoint.ip_version = 0
        return
    packed = inet_pton(AF_INET6 if ":" in address[0] else AF_INET, address[0].partition("%")[0])
    endpoint.port, endpoint.ip_version = address[1], 4 if len(packed) == 4 else 6
    ffi.buffer(endpoint.address, len(packed))[:] = packed


def _forget_in_child() -> None:
    """The page belongs to the parent; the child has none."""
    global _page, _memory  # noqa: PLW0603
    if _page is not None and _page.pid != os.getpid():  # else a hook before this one has made the child's
        _page = _memory = None


os.register_at_fork(after_in_child=_forget_in_child)
