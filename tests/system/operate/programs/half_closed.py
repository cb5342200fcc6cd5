"""Does with connections what each line says, and answers with a line.

    half_closed.py PEER PORT COUNT

A line: NUMBER of a connection, and what: send BYTES, shut, read (until the end), read BYTES, close.
"""

from __future__ import annotations

import errno
import socket
import sys

PIECE = bytes(range(251)) * 40


def stream(count: int) -> bytes:
    return (PIECE * (count // len(PIECE) + 1))[:count]


def read(connection: socket.socket, count: int | None, begun: int) -> tuple[str, int]:
    came = bytearray()
    while count is None or len(came) < count:
        data = connection.recv(65536 if count is None else count - len(came))
        if not data:
            return f"{len(came)} {'right' if came == stream(begun + len(came))[begun:] else 'wrong'} end", len(came)
        came += data
    return f"{len(came)} {'right' if came == stream(begun + len(came))[begun:] else 'wrong'}", len(came)


def main(peer: str, port: str, count: str) -> None:
    connections = [socket.create_connection((peer, int(port))) for _ in range(int(count))]
    sent, got = [0] * len(connections), [0] * len(connections)
    for number, connection in enumerate(connections):
        connection.settimeout(30)
        connection.sendall(bytes([number]))
    print("connected", flush=True)
    for line in sys.stdin:
        number, what, *more = line.split()
        at = int(number)
        connection = connections[at]
        said = "done"
        try:
            if what == "send":
                connection.sendall(stream(sent[at] + int(more[0]))[sent[at] :])
                sent[at] += int(more[0])
            elif what == "shut":
                connection.shutdown(socket.SHUT_WR)
            elif what == "close":
                connection.close()
            else:
                said, came = read(connection, int(more[0]) if more else None, got[at])
                got[at] += came
        except OSError as error:
            said = errno.errorcode.get(error.errno or 0, repr(error))
        print(said, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
