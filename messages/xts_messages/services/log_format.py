"""How the daemons log: as text for people, as JSON for collectors, or to the journal with fields.

    text     2026-11-23 10:00:00,123 xts-proxy WARNING worker 0: tenant web: queue 3: closed
    json     {"time": "2026-11-23T10:00:00.123Z", "level": "warning", "program": "xts-proxy", "pid": 4711,
              "message": "worker 0: …", "worker": 0, "tenant": "web", "queue": 3}
    journal  MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, XTSLOG_WORKER, XTSLOG_TENANT, XTSLOG_QUEUE:
             `journalctl XTSLOG_TENANT=web`

"auto" is the journal if standard error leads there (systemd sets JOURNAL_STREAM), else text. The caller of a log
function says what a line is about with `extra=about(tenant="web")`.

The journal's protocol is a datagram with lines NAME=value, and is stable (systemd's "Native Journal Protocol"). It is
implemented here, since the libraries for it load libsystemd into processes that hold rights. A socket is made for each
record: records are rare, a forked process has other descriptors, and journald may have been restarted.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import socket
import struct
from typing import Any, Literal

from xts_messages.services.log_lines import LineHandler

Format = Literal["auto", "text", "json", "journal"]
FORMATS: tuple[Format, ...] = ("auto", "text", "json", "journal")
#: Fields that say what a line is about.
FIELDS = ("tenant", "worker", "queue", "interface", "uid", "client_pid", "count", "resource")

_JOURNAL = "/run/systemd/journal/socket"
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_MESSAGE_BYTES_MAX = 65536


def about(**fields: object) -> dict[str, object]:
    """The `extra` of a record. KeyError: no such field."""
    unknown = set(fields) - set(FIELDS)
    if unknown:
        raise KeyError(f"no fields of a log line: {', '.join(sorted(unknown))}")
    return {f"xts_{name}": value for name, value in fields.items() if value is not None}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that `about()` has put there."""
    return {name: getattr(record, f"xts_{name}") for name in FIELDS if hasattr(record, f"xts_{name}")}


def handler(wanted: Format, program: str, text: str) -> logging.Handler:
    """The handler that writes records. `text`: the format of a line as text, for logging.Formatter."""
    if wanted == "journal" or (wanted == "auto" and _is_journal()):
        return JournalHandler(program)
    made = LineHandler()
    made.setFormatter(JsonFormatter(program) if wanted == "json" else logging.Formatter(text))
    return made


def _is_journal() -> bool:
    """Does standard error lead to the journal? A unit may have redirected it, or a child may have."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(2)
        return (found.st_dev, found.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):
        return False


class JsonFormatter(logging.Formatter):
    """One line for each record."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z",
            "level": record.levelname.lower(),
            "program": self._program,
            "pid": record.process,
            "message": record.getMessage(),
        } | fields_of(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class JournalHandler(LineHandler):
    """Writes to journald. Records that it does not take go to standard error, with the prefix that systemd parses
    (sd-daemon(3))."""

    def __init__(self, program: str, path: str = _JOURNAL) -> None:
        super().__init__()
        self._program = program
        self._path = path

    def put(self, record: logging.LogRecord) -> bool:
        message = self.format(record)
        priority = _PRIORITIES.get(record.levelno, 6)
        entry = [("MESSAGE", message), ("PRIORITY", str(priority)), ("SYSLOG_IDENTIFIER", self._program)]
        entry += [(f"XTSLOG_{name.upper()}", str(value)) for name, value in fields_of(record).items()]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto(b"".join(journal_field(*one) for one in entry), socket.MSG_DONTWAIT, self._path)
        except OSError:
            return all([self._lines.put(f"<{priority}>{line}") for line in message.splitlines()])
        return True


def journal_field(name: str, value: str) -> bytes:
    """NAME=value, or, for a value of several lines, the form with its length as a number."""
    data = value.encode(errors="replace")[:_MESSAGE_BYTES_MAX]
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
