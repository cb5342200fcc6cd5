"""`xts-otlp`: sends the metrics of xts-proxy and xts-agent to a collector of OpenTelemetry.

It is a separate program, which reads what Prometheus would read, and pushes it on. So neither the proxy nor the process
that serves its metrics needs a right to connect anywhere, and it can be started, stopped and updated alone. The
protocol is that of opentelemetry-exporter-otlp-proto-http, with its retries. Its environment variables are supported
too: OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_EXPORTER_OTLP_COMPRESSION and others.
"""

from __future__ import annotations

import argparse
import http.client
import logging
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from xts_messages.settings.configuration_file import read_bytes
from xts_messages.terminal.command_line import CommandLine, add_common
from xts_messages.terminal.printable import printable
from xts_messages.terminal.standard_output import ends_with_reader

INTERVAL_S = 30.0
FETCH_S = 10.0
ANSWER_BYTES_MAX = 64 << 20
_PIECE_BYTES = 1 << 16

_EXAMPLES = """\
examples:
  xts-otlp --from unix:/run/xts/metrics.sock --to http://collector:4318/v1/metrics
  xts-otlp --from unix:/run/xts/metrics.sock --from http://127.0.0.1:9465 --to URL --interval 10
  xts-otlp --from https://dpu1:9464 --token FILE --ca FILE --to URL --once
"""


# --- the sources of metrics ----------------------------------------------------------------------------


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=FETCH_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(source: str, ca: str | None) -> http.client.HTTPConnection:
    if source.startswith("unix:"):
        return _UnixConnection(source.removeprefix("unix:"))
    parts = urlsplit(source)
    assert parts.hostname
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=ca)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=FETCH_S, context=context)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=FETCH_S)


def fetch(source: str, token: str = "", ca: str | None = None) -> str:
    """A metrics server's answer. OSError, ValueError or HTTPException: the answer is wrong, or too late."""
    until = time.monotonic() + FETCH_S
    connection = _connection(source, ca)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        text = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            text += piece
            if len(text) > ANSWER_BYTES_MAX:
                raise ValueError(f"its answer is longer than {ANSWER_BYTES_MAX >> 20} MiB")
            if time.monotonic() > until:
                raise TimeoutError(f"its answer takes longer than {FETCH_S:g} s")
        if answer.status != http.client.OK:
            raise ValueError(f"it answers {answer.status} {printable(answer.reason)}")
        return text.decode()
    finally:
        connection.close()


# --- the collector -------------------------------------------------------------------------------------


class _LastWord(logging.Handler):
    """Keeps the last line that the library has logged, for our own line."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class Pusher:
    """Pushes the metrics of several sources to one collector. OSError: the library of OpenTelemetry is missing."""

    def __init__(self, sources: Sequence[str], to: str, token: str = "", ca: str | None = None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            from . import metrics_otlp
        except ImportError as error:
            raise OSError(f"{error.name} is missing: pip install 'xts-offload[otlp]'") from None
        self._converted = metrics_otlp.converted
        self._sources, self._to, self._token, self._ca = sources, to, token, ca
        self._last_word = _LastWord()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._last_word)
        logger.propagate = False
        self._exporter: Any = OTLPMetricExporter(endpoint=to)
        self._wrong: dict[str, str] = {}

    def push(self) -> bool:
        """Pushes each source once. False: not everything has arrived. Changes of that go to standard error."""
        for source in self._sources:
            self._note(source, self._push_one(source))
        return not self._wrong

    def _push_one(self, source: str) -> str:
        """Returns a description of the failure; "": none."""
        try:
            data = self._converted(fetch(source, self._token, self._ca), time.time_ns())
        except (OSError, ValueError, http.client.HTTPException) as error:
            return f"{source}: {printable(getattr(error, 'strerror', None) or str(error) or type(error).__name__)}"
        self._last_word.text = ""
        if self._exporter.export(data).name == "SUCCESS":
            return ""
        return f"{self._to} does not take metrics: {printable(self._last_word.text) or 'no reason given'}"

    def _note(self, source: str, wrong: str) -> None:
        before = self._wrong.pop(source, "")
        if wrong:
            self._wrong[source] = wrong
        if wrong and not before:
            print(f"xts-otlp: {wrong}", file=sys.stderr, flush=True)
        elif before and not wrong:
            print(f"xts-otlp: {source}: metrics arrive again", file=sys.stderr, flush=True)


# --- the command ---------------------------------------------------------------------------------------


def _source(text: str) -> str:
    if text.startswith("unix:/") and len(text.encode()) < 108 + len("unix:"):
        return text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/", "/metrics"):
        raise argparse.ArgumentTypeError("give unix:/PATH, http://HOST:PORT or https://HOST:PORT")
    _ = parts.port  # raises ValueError for an invalid port
    return text


def _collector(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError("give a URL, such as http://collector:4318/v1/metrics")
    return text


def _interval(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError("from 1 to 3600 seconds")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = CommandLine(
        prog="xts-otlp",
        description="Sends the metrics of xts-proxy and xts-agent to a collector of OpenTelemetry, by OTLP over HTTP.",
        epilog=_EXAMPLES,
    )
    add_common(parser)
    add = parser.add_argument
    add(
        "--from",
        dest="sources",
        action="append",
        required=True,
        type=_source,
        metavar="SOURCE",
        help="where to read metrics: unix:/PATH, http://HOST:PORT or https://HOST:PORT; may be repeated",
    )
    add("--to", required=True, type=_collector, metavar="URL", help="the collector's address for metrics")
    add(
        "--interval",
        type=_interval,
        default=INTERVAL_S,
        metavar="S",
        help=f"seconds between two reports (default {INTERVAL_S:g})",
    )
    add("--token", metavar="FILE", help="file with the bearer token that the sources require")
    add(
        "--ca",
        metavar="FILE",
        help="certificates (PEM) to verify the sources' certificates with (default: the system's)",
    )
    add("--once", action="store_true", help="send one report and exit; status 0: all of it has arrived")
    return parser


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """Runs until it is ended. 0; 1: not everything has arrived (--once), or it cannot begin; 2: wrong usage."""
    options = make_parser().parse_args(arguments)
    try:
        token = read_bytes(options.token, 4096).decode("ascii").strip() if options.token else ""
        pusher = Pusher(options.sources, options.to, token, options.ca)
    except (OSError, ValueError) as error:
        named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        print(f"xts-otlp: {named}{getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    try:
        while True:
            begun = time.monotonic()
            arrived = pusher.push()
            if options.once:
                return 0 if arrived else 1
            time.sleep(max(0.0, begun + options.interval - time.monotonic()))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
