"""Keeps connections to an echo server, and asks on each when a line comes; says how that went in a line, and at once
that it is there. Part of test_upgrade_in_service.py.

    holder.py SERVER PORT COUNT [pushed]

pushed: with a protocol that does not move, by xts_socket: TLS with keys of this program, the same in both directions,
so that an echo can be read. Else by the sockets of any program."""

import os
import struct
import sys

server, port, count, *pushed = sys.argv[1:]
if pushed:
    import xts_socket as socket
else:
    import socket


def connected():
    if not pushed:
        return socket.create_connection((server, int(port)))
    made = socket.create_connection((server, int(port)))
    keys = struct.pack("=HH8s16s4s8s", 0x0304, 51, bytes(8), bytes(16), bytes(4), bytes(8))
    for direction in ("receive", "send"):
        made.push(socket.TlsKeys(crypto_info=keys, crypto="user"), direction=direction)
    return made


def goes_on(connection):
    request, answer = os.urandom(1000), b""
    connection.sendall(request)
    while len(answer) < len(request) and (more := connection.recv(4096)):
        answer += more
    return answer == request


connections = [connected() for _ in range(int(count))]
print("up", flush=True)
for _ in sys.stdin:
    ended = 0
    for connection in connections:
        try:
            ended += not goes_on(connection)
        except OSError as error:
            print(error, file=sys.stderr)
            ended += 1
    print(f"{ended} ended", flush=True)
