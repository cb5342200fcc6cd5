"""The demo's programs, each the same on offloaded and on kernel sockets: only the module they import differs.

    python -m xts_lab.jobs fetch HOST PORT /path SHA256     an HTTP client that verifies what it gets
    python -m xts_lab.jobs serve HOST PORT FILE             an HTTP server for one request
    python -m xts_lab.jobs ask HOST PORT SECONDS            64-byte requests, one after the other
    python -m xts_lab.jobs echo HOST PORT                   what `ask` talks to

With --kernel they use the standard `socket` module, otherwise `xts_socket`. They report as JSON, one object a
line: how far they are ({"done": 0.25}), then their figures. Host CPU is the busy time of the whole core they
run on: the work that the kernel does for a socket in interrupts is in nobody's process time.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import socket as kernel_socket
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

REPORT_EVERY_S = 0.1
CHUNK_BYTES = 1 << 20


def report(**values: Any) -> None:
    """One line for whoever started us."""
    print(json.dumps(values), flush=True)


class Progress:
    """Says now and then how far we are."""

    def __init__(self) -> None:
        self.next = 0.0

    def at(self, done: float) -> None:
        """done: 0 to 1."""
        now = time.monotonic()
        if now >= self.next:
            self.next = now + REPORT_EVERY_S
            report(done=done)


class Stopwatch:
    """Wall time, and busy seconds of this core, between `start()` and `stop()`."""

    def __init__(self, core: int) -> None:
        self.core = core

    def _now(self) -> tuple[float, float]:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name == f"cpu{self.core}":
                # Idle, iowait, steal: what a hypervisor gave to others is no work of ours.
                unused_ticks = int(ticks[3]) + int(ticks[4]) + int(ticks[7])
                return time.monotonic(), unused_ticks / os.sysconf("SC_CLK_TCK")
        raise RuntimeError(f"no cpu{self.core} in /proc/stat")

    def start(self) -> None:
        self.begun = self._now()

    def stop(self) -> dict[str, float]:
        """The figures, by name."""
        now = self._now()
        seconds = now[0] - self.begun[0]
        return {"seconds": seconds, "host_busy_s": max(0.0, seconds - (now[1] - self.begun[1]))}


def fetch(sockets: Any, clock: Stopwatch, address: tuple[str, int], path: str, sha256: str) -> None:
    """GETs a file into memory, as fast as it comes, then checks it."""
    progress = Progress()
    with sockets.create_connection(address, timeout=30) as connection, connection.makefile("rb") as stream:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {address[0]}\r\n\r\n".encode())
        status = stream.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{path}: {status.decode().strip() or 'connection closed'}")
        length = -1
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        content = memoryview(bytearray(b"\0") * length)  # written to: the first touch of a page is no work of a socket
        first = stream.read1(length)  # what came along with the header
        content[: len(first)] = first
        have = len(first)
        clock.start()
        timed_from = have
        while have < length:
            received = connection.recv_into(content[have : have + CHUNK_BYTES])
            if received == 0:
                raise RuntimeError(f"{path}: {have} of {length} bytes came")
            have += received
            progress.at(have / length)
        figures = clock.stop()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise RuntimeError(f"{path}: the SHA-256 is wrong")
    report(**figures, bytes=length - timed_from, verified=True)


def serve(sockets: Any, clock: Stopwatch, address: tuple[str, int], path: str) -> None:
    """Answers one HTTP request with a file."""
    content = memoryview(Path(path).read_bytes())
    progress = Progress()
    with sockets.create_server(address) as listener:
        report(listening=listener.getsockname()[1])
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(4096)
            clock.start()
            connection.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode())
            for at in range(0, len(content), CHUNK_BYTES):
                connection.sendall(content[at : at + CHUNK_BYTES])
                progress.at(at / len(content))
            connection.shutdown(kernel_socket.SHUT_WR)
            while connection.recv(4096):  # until the client has it all and closes
                pass
            report(**clock.stop(), bytes=len(content))


def ask(sockets: Any, clock: Stopwatch, address: tuple[str, int], seconds: float) -> None:
    """One request after the other; each is answered before the next."""
    progress = Progress()
    request = bytes(range(64))
    latencies_us = []
    with sockets.create_connection(address, timeout=30) as connection:
        connection.setsockopt(kernel_socket.IPPROTO_TCP, kernel_socket.TCP_NODELAY, 1)
        clock.start()
        begun = now = time.monotonic()
        while now < begun + seconds:
            sent = now
            connection.sendall(request)
            answer = connection.recv(64, kernel_socket.MSG_WAITALL)
            if answer != request:
                raise RuntimeError("the answer differs from the request")
            now = time.monotonic()
            latencies_us.append((now - sent) * 1e6)
            progress.at((now - begun) / seconds)
        figures = clock.stop()
    percentiles = statistics.quantiles(latencies_us, n=1000)
    report(
        **figures,
        requests=len(latencies_us),
        p50_us=percentiles[499],
        p99_us=percentiles[989],
        p999_us=percentiles[998],
    )


def echo(sockets: Any, address: tuple[str, int]) -> None:
    """Sends back what comes, on any number of connections, until it is stopped."""

    def serve_one(connection: Any) -> None:
        with connection:
            connection.setsockopt(kernel_socket.IPPROTO_TCP, kernel_socket.TCP_NODELAY, 1)
            while data := connection.recv(65536):
                connection.sendall(data)

    with sockets.create_server(address, backlog=1024) as listener:
        report(listening=listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def main(argv: list[str]) -> int:
    """Does one job; the exit status says whether it went well."""
    parser = argparse.ArgumentParser(
        prog="python -m xts_lab.jobs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=("fetch", "serve", "ask", "echo"))
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--kernel", action="store_true", help="the standard socket module")
    parser.add_argument("--core", type=int, help="the core to run on (default: the first allowed)")
    options = parser.parse_args(argv)
    core = min(os.sched_getaffinity(0)) if options.core is None else options.core
    os.sched_setaffinity(0, {core})
    sockets = importlib.import_module("socket" if options.kernel else "xts_socket")
    address = (options.host, options.port)
    try:
        if options.job == "fetch":
            fetch(sockets, Stopwatch(core), address, options.rest[0], options.rest[1])
        elif options.job == "serve":
            serve(sockets, Stopwatch(core), address, options.rest[0])
        elif options.job == "ask":
            ask(sockets, Stopwatch(core), address, float(options.rest[0]))
        else:
            echo(sockets, address)
    except (OSError, RuntimeError) as error:
        print(f"{options.job}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
