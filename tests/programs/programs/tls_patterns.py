"""TLS in the proxy, for peers that are other programs. Each connection begins with a line of JSON that says how many
bytes go each way, of which pattern. `serve`: a server, which prints its port. `connect PORT`: for each line of standard
input one connection to a server that sends lines back. `get PORT`: the same, of a file by HTTP. Prints what each
connection came to: "ok", or what was wrong."""

from __future__ import annotations

import json
import random
import sys
import threading
from typing import Any

import xts_socket
from xts_socket import Tls

DEADLINE_S = 60.0


def pattern(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def answer(sock: xts_socket.socket, how: dict[str, Any]) -> None:
    sock.sendall(pattern(how["seed"] + 1, how["answer"]))


def served(sock: xts_socket.socket) -> str:
    """Reads what the client sends until it has ended, or as much as it has said, and answers: then, or at once, while
    that comes."""
    with sock, sock.makefile("rb") as file:
        sock.settimeout(DEADLINE_S)
        how = json.loads(file.readline())
        answering = threading.Thread(target=answer, args=(sock, how))
        if how["at_once"]:
            answering.start()
        came = file.read(how["size"] if how.get("counted") else -1)
        if not how["at_once"]:
            answering.start()
        answering.join(DEADLINE_S)
        return "ok" if came == pattern(how["seed"], how["size"]) else f"{len(came)} bytes of {how['size']}, or others"


def serve() -> None:
    server = xts_socket.create_server(("127.0.0.1", 0), backlog=100, tls=Tls(identity="own"))
    print(server.getsockname()[1], flush=True)
    while True:
        sock, _ = server.accept()
        try:
            print(served(sock), flush=True)
        except (OSError, ValueError) as error:
            print(repr(error), flush=True)


def connection(port: int, how: dict[str, Any]) -> xts_socket.socket:
    tls = Tls(server_hostname="localhost", ca="lab", **how["tls"])
    return xts_socket.create_connection(("127.0.0.1", port), DEADLINE_S, tls=tls)


def got(port: int, how: dict[str, Any]) -> str:
    with connection(port, how) as sock, sock.makefile("rb") as file:
        sock.sendall(f"GET /{how['path']} HTTP/1.0\r\n\r\n".encode())
        _, _, body = file.read().partition(b"\r\n\r\n")
        right = body.startswith(pattern(how["seed"], how["size"]))
        return "ok" if right else f"{len(body)} bytes of {how['size']}, or others"


def connected(port: int, how: dict[str, Any]) -> str:
    with connection(port, how) as sock, sock.makefile("rb") as file:
        for size in how["sizes"]:
            line = pattern(how["seed"], size).hex().encode() + b"\n"
            sock.sendall(line)
            if (came := file.readline()) != line:
                return f"{len(came)} bytes of {len(line)}, or others"
        if how["half_close"]:
            sock.shutdown(xts_socket.SHUT_WR)
            if rest := file.read():
                return f"{len(rest)} bytes after the end"
    return "ok"


if sys.argv[1] == "serve":
    serve()
for text in sys.stdin:
    try:
        print({"connect": connected, "get": got}[sys.argv[1]](int(sys.argv[2]), json.loads(text)), flush=True)
    except OSError as error:
        print(repr(error), flush=True)
