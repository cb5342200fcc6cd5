"""The other end of wait_bed.py, on the kernel: does what its standard input asks for, one JSON line each."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from typing import Any


def drain(end: socket.socket, count: int) -> None:
    while count:
        count -= len(end.recv(min(count, 1 << 20)))


def main() -> None:
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    ends: list[socket.socket] = []
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        answer: Any = None
        if word == "port":
            answer = server.getsockname()[1]
        elif word == "accept":
            ends.append(server.accept()[0])
            answer = len(ends) - 1
        elif word == "connect":
            ends.append(socket.create_connection(("127.0.0.1", arguments[0])))
            answer = len(ends) - 1
        elif word == "send":
            ends[arguments[0]].sendall(arguments[1].encode())
        elif word == "recv":
            answer = ends[arguments[0]].recv(arguments[1], socket.MSG_WAITALL).decode()
        elif word == "later":
            threading.Timer(arguments[2], ends[arguments[0]].sendall, (arguments[1].encode(),)).start()
        elif word == "connect later":
            threading.Timer(arguments[1], socket.create_connection, (("127.0.0.1", arguments[0]),)).start()
        elif word == "drain later":
            threading.Timer(arguments[2], drain, (ends[arguments[0]], arguments[1])).start()
        elif word == "end and reset":
            ends[arguments[0]].shutdown(socket.SHUT_WR)
            ends[arguments[0]].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ends[arguments[0]].close()
        elif word == "close":
            ends[arguments[0]].close()
        else:
            raise ValueError(word)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
