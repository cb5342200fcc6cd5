"""Log lines on stderr: with time and level for people, with the priority prefix that the journal understands for it."""

from __future__ import annotations

import logging
import os
import sys

LOG = logging.getLogger("xts-proxy")

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class _JournalFormatter(logging.Formatter):
    """sd-daemon(3): each line begins with its priority."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def start(level: str) -> None:
    """Sends everything from `level` on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(_JournalFormatter("%(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s xts-proxy %(levelname)s %(message)s"))
    LOG.handlers[:] = [handler]
    LOG.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Takes effect at once."""
    LOG.setLevel(level.upper())
