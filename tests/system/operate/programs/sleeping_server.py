"""Servers that sleep: all sockets are in one epoll set, and no call is made until one of them is readable.

sleeping_server.py ADDRESS INTERFACE FORKED REUSED TLS UDP GROUP: makes sockets on the address, with these ports, and
forks. All processes have the first listener, and each has a listener with SO_REUSEPORT, one with TLS pushed onto it,
and a UDP socket that is a member of the group. It answers with a line of JSON: which process it is, and what
getsockopt() says of the socket. It prints "ready" before it sleeps, and later each error.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import sys
import time

from xts_messages.wire.ulps import BY_NAME, REQUESTS

PROCESSES = 8
ROLE, IDENTITY = 1, 6  # attributes of TLS
PR_SET_PDEATHSIG, SIGKILL = 1, 9
#: Six options, none of which has this value by default.
OPTIONS = {
    "SO_REUSEADDR": (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    "SO_REUSEPORT": (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1),
    "SO_KEEPALIVE": (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "TCP_NODELAY": (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    "TCP_KEEPIDLE": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
    "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 12345),
}
TTL = 33


def push_tls(sock: socket.socket) -> None:
    attributes = struct.pack(">HHB", ROLE, 1, 2) + struct.pack(">HH", IDENTITY, 9) + b"localhost"
    fcntl.ioctl(sock, REQUESTS["PUSH_ULP"][0], struct.pack("=HH", BY_NAME["TLS"].number, len(attributes)) + attributes)


def listener(address: str, port: int, *, tls: bool = False) -> socket.socket:
    made = socket.socket()
    for level, option, value in OPTIONS.values():
        made.setsockopt(level, option, value)
    made.bind((address, port))
    if tls:
        push_tls(made)
    made.listen(64)
    made.setblocking(False)
    return made


def datagrams(address: str, port: int, group: str, interface: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
    membership = socket.inet_aton(group) + socket.inet_aton(interface)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, TTL)
    made.setblocking(False)
    return made


def describe(sock: socket.socket) -> bytes:
    if sock.type == socket.SOCK_DGRAM:
        said = {"IP_TTL": sock.getsockopt(socket.IPPROTO_IP, socket.IP_TTL)}
    else:
        said = {name: sock.getsockopt(level, option) for name, (level, option, _) in OPTIONS.items()}
    return json.dumps({"pid": os.getpid(), "options": said}).encode() + b"\n"


def serve_one(sock: socket.socket) -> None:
    if sock.type == socket.SOCK_DGRAM:
        _, peer = sock.recvfrom(2048)
        sock.sendto(describe(sock), peer)
        return
    connection, _ = sock.accept()
    with connection:
        connection.sendall(describe(sock))


def serve(sockets: list[socket.socket]) -> None:
    by_number = {sock.fileno(): sock for sock in sockets}
    with select.epoll() as events:
        for number in by_number:
            events.register(number, select.EPOLLIN)
        os.write(1, b"ready\n")  # in one piece: others write to the same pipe
        while True:
            for number, _ in events.poll():
                try:
                    serve_one(by_number[number])
                except BlockingIOError:
                    pass
                except OSError as error:
                    os.write(1, b"%d %d\n" % (number, error.errno))


def main() -> None:
    address, interface, group = sys.argv[1], sys.argv[2], sys.argv[7]
    forked, reused, tls, udp = (int(word) for word in sys.argv[3:7])
    shared = listener(address, forked)
    for _ in range(PROCESSES):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
            own = [listener(address, reused), listener(address, tls, tls=True)]
            own.append(datagrams(address, udp, group, interface))
            serve([shared, *own])
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
