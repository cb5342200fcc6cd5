"""Answers questions that come as datagrams: python receive_callback.py PORT QUESTIONS

A callback sees each datagram before it is queued. It drops those without a question mark, keeps the urgent ones in the
memory they have come in, and leaves the rest to recv(). (early_filter.py drops on the device, before the queue to this
host; this is for what takes a program to tell.)
"""

import sys
from contextlib import suppress
from select import EPOLLIN

from xts_socket import AF_INET, SOCK_DGRAM, Packet, PacketVerdict, epoll, socket

verdicts: list[PacketVerdict] = []
urgent: list[Packet] = []


def look(packet: Packet) -> PacketVerdict:
    data = bytes(packet.data)
    if b"?" not in data:
        verdicts.append(PacketVerdict.DROP)
    elif data.startswith(b"urgent"):
        urgent.append(packet)
        verdicts.append(PacketVerdict.HOLD)
    else:
        verdicts.append(PacketVerdict.RECV)
    return verdicts[-1]


if len(sys.argv) != 3:
    sys.exit("usage: python receive_callback.py PORT QUESTIONS")
port, questions = int(sys.argv[1]), int(sys.argv[2])
with socket(AF_INET, SOCK_DGRAM) as sock, epoll() as polled:
    sock.setblocking(False)
    sock.set_receive_callback(look)
    sock.bind(("0.0.0.0", port))
    polled.register(sock, EPOLLIN)
    print("bound", flush=True)
    while questions:
        polled.poll()
        with suppress(BlockingIOError):
            print("queued:", sock.recv(65536).decode(errors="replace"), flush=True)
            questions -= 1
        while urgent:
            with urgent.pop(0) as packet:
                print("kept:", bytes(packet.data).decode(errors="replace"), flush=True)
            questions -= 1
print(f"{verdicts.count(PacketVerdict.DROP)} dropped")
