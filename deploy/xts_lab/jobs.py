"""The demo's programs, on offloaded sockets:

    python -m xts_lab.jobs fetch HOST PORT /path SHA256 [--tls NAME --trust ROOTS]   an HTTP client that verifies
    python -m xts_lab.jobs serve HOST PORT FILE                                     an HTTP server for one request

With --tls the proxy speaks TLS with the server: NAME is the name that its certificate must be for, ROOTS the name of
the trust roots in the proxy's configuration. Each program prints a line of JSON about what it did; `serve` first prints
the port it listens on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket as kernel_socket
import sys
from pathlib import Path
from typing import Any

import xts_socket

CHUNK_BYTES = 1 << 18
TIMEOUT_S = 30


def report(**values: Any) -> None:
    """Prints one line for the process that started us."""
    print(json.dumps(values), flush=True)


def fetch(address: tuple[str, int], path: str, sha256: str, tls: xts_socket.Tls | None) -> None:
    """GETs a file and checks it."""
    with (
        xts_socket.create_connection(address, timeout=TIMEOUT_S, tls=tls) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {address[0]}\r\n\r\n".encode())
        status = stream.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{path}: {status.decode().strip() or 'connection closed'}")
        while stream.readline().strip():
            pass
        digest, have = hashlib.sha256(), 0
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
            have += len(block)
        secured = connection.tls.version() if connection.tls else None
    if digest.hexdigest() != sha256:
        raise RuntimeError(f"{path}: the SHA-256 is wrong")
    report(bytes=have, tls=secured)


def serve(address: tuple[str, int], path: str) -> None:
    """Answers one HTTP request with a file."""
    content = memoryview(Path(path).read_bytes())
    with xts_socket.create_server(address) as listener:
        report(listening=listener.getsockname()[1])
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            request = b""
            while b"\r\n\r\n" not in request:
                got = connection.recv(4096)
                if not got:
                    raise RuntimeError("the client left before it had asked")
                request += got
            connection.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode())
            for at in range(0, len(content), CHUNK_BYTES):
                connection.sendall(content[at : at + CHUNK_BYTES])
            connection.shutdown(kernel_socket.SHUT_WR)
            while connection.recv(4096):  # until the client has everything and closes
                pass
    report(bytes=len(content))


def main(argv: list[str]) -> int:
    """Does one job; the exit status says whether it went well."""
    parser = argparse.ArgumentParser(
        prog="python -m xts_lab.jobs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=("fetch", "serve"))
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--tls", metavar="NAME")
    parser.add_argument("--trust", metavar="ROOTS")
    parser.add_argument("--core", type=int, help="the core to run on (default: any)")
    options = parser.parse_args(argv)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    address = (options.host, options.port)
    try:
        if options.job == "fetch":
            tls = xts_socket.Tls(server_hostname=options.tls, ca=options.trust) if options.tls else None
            fetch(address, options.rest[0], options.rest[1], tls)
        else:
            serve(address, options.rest[0])
    except (OSError, RuntimeError) as error:
        print(f"{options.job}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
