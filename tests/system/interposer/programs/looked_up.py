"""Calls on functions that are looked up in the C library itself, as foreign function interfaces do. A line for each:
what it came to, and how much of what is sent afterwards arrives."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from ctypes.util import find_library

HERE = os.environ["LISTEN_AT"]
PATIENCE_S = 10


def version(library: ctypes.CDLL, name: str, of: bytes) -> ctypes._FuncPointer:
    look_up = ctypes.CDLL(None).dlvsym
    look_up.restype, look_up.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    found = look_up(library._handle, name.encode(), of)
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(found)


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server((HERE, 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
        server, _ = listener.accept()
    server.settimeout(PATIENCE_S)
    return client, server


def main(oldest: bytes) -> None:
    library = ctypes.CDLL(find_library("c"))
    client, server = connected()
    print("write", library.write(client.fileno(), b"data", 4), server.recv(4), flush=True)
    copy = library.dup(client.fileno())
    client.close()
    print("dup", socket.socket(fileno=copy).sendall(b"copy"), server.recv(4), flush=True)
    client, server = connected()
    print("close", library.close(client.detach()), server.recv(4), flush=True)
    client, server = connected()
    print("dlvsym", version(library, "close", oldest)(client.detach()), server.recv(4), flush=True)
    with socket.create_server((HERE, 0)) as listener:
        made = socket.socket(fileno=library.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
        print("socket", made.connect_ex(listener.getsockname()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1].encode())
