"""Serves TCP and UDP at an address, and answers with what it gets, a connection each by a thread of its own."""

import socket
import sys
import threading

address, port = sys.argv[1], int(sys.argv[2])
listener = socket.create_server((address, port), backlog=64)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((address, port))


def serve(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def answer():
    while True:
        data, sender = datagrams.recvfrom(1 << 16)
        datagrams.sendto(data, sender)


threading.Thread(target=answer, daemon=True).start()
print("up", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
