"""Sends so many bytes to an echo server, and says whether the same came back: their hash, or what was wrong."""

import hashlib
import socket
import sys
import threading

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PIECE = bytes(range(256)) * 256
sent, received = hashlib.sha256(), hashlib.sha256()


def send(connection):
    left, number = count, 0
    while left:
        piece = (number.to_bytes(8, "big") + PIECE)[: min(left, len(PIECE))]
        connection.sendall(piece)
        sent.update(piece)
        left, number = left - len(piece), number + 1
    connection.shutdown(socket.SHUT_WR)


with socket.create_connection((host, port), 60) as connection:
    connection.settimeout(120)
    sender = threading.Thread(target=send, args=(connection,))
    sender.start()
    came = 0
    while data := connection.recv(1 << 18):
        received.update(data)
        came += len(data)
    sender.join()
print("the same" if sent.digest() == received.digest() else f"{came} of {count} bytes, or others", flush=True)
