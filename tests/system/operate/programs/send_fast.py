"""Sends as fast as it may for some seconds, then prints what its socket says of its rate and traffic class.

Arguments: tcp or udp, address, port, seconds, a rate of the socket in bytes a second or 0, a traffic class or -1.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from contextlib import suppress

import xts_socket as socket

SO_MAX_PACING_RATE = 47
DATAGRAM_BYTES = 1400
CHUNK_BYTES = 1 << 17


def options(sock: socket.socket, rate: int, traffic_class: int) -> None:
    if rate:
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", rate))
    if traffic_class >= 0 and sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
    elif traffic_class >= 0:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)


def send(sock: socket.socket, seconds: float, data: bytes) -> None:
    until = time.monotonic() + seconds
    with suppress(BrokenPipeError, ConnectionResetError):  # the peer has seen enough
        while time.monotonic() < until:
            sock.sendall(data)


def main(protocol: str, address: str, port: str, *numbers: str) -> None:
    seconds, rate, traffic_class = float(numbers[0]), int(numbers[1]), int(numbers[2])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(family, kind) as sock:
        options(sock, rate, traffic_class)
        sock.connect((address, int(port)))
        level, option = (
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            if family == socket.AF_INET6
            else (socket.IPPROTO_IP, socket.IP_TOS)
        )
        said = {
            "rate": struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))[0],
            "traffic_class": sock.getsockopt(level, option),
        }
        send(sock, seconds, bytes(CHUNK_BYTES if protocol == "tcp" else DATAGRAM_BYTES))
    print(json.dumps(said))


main(*sys.argv[1:])
