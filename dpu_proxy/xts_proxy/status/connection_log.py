"""A line of JSON for each connection that has ended (connection/closed_records.h), in a file. Off by default; sampled.

Workers keep the records until the supervisor fetches them, every FETCH_S. If the disk is full, or the file cannot be
opened again, records are lost and the log says so; connections are not affected.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from xts_messages.wire import record_table

from xts_proxy.supervisor import sandbox
from xts_proxy.supervisor.heartbeat import Worker as Looked
from xts_proxy.supervisor.heartbeat import answers
from xts_proxy.supervisor.log import LOG
from xts_proxy.supervisor.periodic import Periodic

FETCH_S = 0.5
_TIMES_MAX = 8  # Worker.closed() returns only some at a time
_COMPLAIN_S = 60.0
_OPEN = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
_MODE = 0o640
#: enum xts_closed_begin, enum xts_closed_end.
BEGIN = ("connect", "accept", "claim")
END = ("closed", "unconnected", "failed", "reset", "host_gone", "delivered", "undelivered", "handed_over")
#: What the table of records lets be shown of a connection's TCP side.
_SIDE = tuple(field.view for _, field in record_table.views() if field.view != "error")


class Worker(Looked, Protocol):
    """The worker whose connections end."""

    def closed(self) -> list[dict[str, Any]]: ...


def line(row: Mapping[str, Any], worker: int, now: float, now_ns: int) -> str:
    """The line for a row of Worker.closed(). `now` and `now_ns`: the same moment in Unix time and by the worker's
    clock."""

    def at(when_ns: int) -> str | None:
        if not when_ns:
            return None
        when = datetime.datetime.fromtimestamp(now - (now_ns - when_ns) / 1e9, datetime.UTC)
        return when.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"

    connected_ns = row["connected_ns"]
    found: dict[str, Any] = {
        "begun": at(row["begun_ns"]),
        "ended": at(row["ended_ns"]),
        "seconds": round((row["ended_ns"] - row["begun_ns"]) / 1e9, 6),
        "connect_s": round((connected_ns - row["begun_ns"]) / 1e9, 6) if connected_ns else None,
        "begin": BEGIN[row["begin"]],
        "end": END[row["end"]],
        "error": errno.errorcode.get(row["error"], str(row["error"])) if row["error"] else None,
        **{name: row[name] for name in ("tenant", "local", "peer")},
        "worker": worker,
        "queue": row["queue_id"],
        "relayed": row["relayed"] or None,
        **{name: row[name] for name in ("pid", "xts_socket", "proxy_id")},
        **{name: row[name] for name in (*_SIDE, "rtt_us", "retransmits", "ulps")},
    }
    return json.dumps(found)


class ConnectionLog(Periodic):
    """The file; fetches records every FETCH_S."""

    def __init__(self, path: str, workers: Sequence[Worker], owner: int) -> None:
        """Opens the file; a new file gets the owner `owner`. OSError: it cannot be opened."""
        super().__init__(FETCH_S, self.fetch)
        self._path = path
        self._workers = workers
        self._owner = owner
        self._lost = 0
        self._complained = -_COMPLAIN_S
        self._unfinished = False  # its last line is incomplete
        self._fd = self._open()

    def _open(self) -> int:
        try:
            fd = os.open(self._path, _OPEN, _MODE)
        except OSError as error:
            raise OSError(error.errno, f"proxy.connection_log: {self._path}: {error.strerror}") from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, f"proxy.connection_log: {self._path} is no file")
        if not found.st_size and found.st_uid != self._owner and os.geteuid() == 0:
            os.fchown(fd, self._owner, -1)  # so that it can be opened again when we are no longer root
        return fd

    def open_again(self) -> None:
        """Opens the file again after logrotate has renamed it. If it cannot be opened, the old file stays in use."""
        try:
            with sandbox.reading():
                fd = self._open()
        except OSError as error:
            LOG.error("%s; the file that is open stays", error.strerror)
            return
        os.close(self._fd)
        self._fd, self._unfinished = fd, False

    def close(self) -> None:
        """Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fetch(self) -> None:
        """Fetches records once."""
        for worker in self._workers:
            with suppress(OSError):  # the worker does not answer now; its records wait
                self._fetch_of(worker)

    def _fetch_of(self, worker: Worker) -> None:
        for _ in range(_TIMES_MAX if answers(worker) else 0):
            if not (rows := worker.closed()):
                break
            now, now_ns = time.time(), time.monotonic_ns()
            self._write([line(row, worker.index, now, now_ns) for row in rows])

    def _write(self, lines: list[str]) -> None:
        data = ("\n" if self._unfinished else "").encode() + "".join(f"{one}\n" for one in lines).encode()
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self._lost += len(lines)
            self._complain(error.strerror or str(error))
            return
        if written < len(data):
            self._unfinished = data[written - 1 : written] != b"\n"
            self._lost += data[written:].count(b"\n")
            self._complain("the disk is full")
        else:
            self._unfinished = False

    def _complain(self, why: str) -> None:
        """Logs lost records, but not each one."""
        if time.monotonic() - self._complained >= _COMPLAIN_S:
            self._complained = time.monotonic()
            LOG.error("proxy.connection_log: %s: %s; %d records are lost", self._path, why, self._lost)
