"""What an application does, by the library of whichever version runs this; its peers are of the kernel.

Prints a line of JSON: for each thing it tried, "ok", or the name and the text of the error.
Usage: exchange.py NAME ADDRESS
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import socket as kernel
import struct
import sys
import threading
from collections.abc import Callable

import xts_socket

HOME = "127.0.0.1"
DEADLINE_S = 15.0
#: More than any window.
BULK = os.urandom(1 << 16) * 64
SO_TIMESTAMPNS, SO_ATTACH_FILTER, IP_RECVERR = 35, 26, 11
GROUP = "239.1.2.3"
#: ldh [0]; jeq "an": return all, else nothing. The length of UDP's header comes first.
FILTER = [(0x28, 0, 0, 8), (0x15, 0, 1, 0x616E), (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)]


def serve(listener: kernel.socket) -> None:
    """Sends everything back that one connection brings, when it has ended."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(b"".join(iter(lambda: connection.recv(1 << 16), b"")))


def connect() -> None:
    """Both directions, more than a window, a half-close, the end of the stream."""
    with kernel.create_server((HOME, 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with xts_socket.create_connection(listener.getsockname(), timeout=DEADLINE_S) as s:
            s.sendall(BULK)
            s.shutdown(xts_socket.SHUT_WR)
            got = hashlib.sha256()
            while data := s.recv(1 << 16):
                got.update(data)
        thread.join(DEADLINE_S)
    assert got.digest() == hashlib.sha256(BULK).digest()


def many() -> None:
    """Identifiers are used again."""
    with kernel.create_server((HOME, 0)) as listener:
        for number in range(200):
            with xts_socket.create_connection(listener.getsockname(), timeout=DEADLINE_S) as s:
                peer, _ = listener.accept()
                with peer:
                    s.sendall(b"%d" % number)
                    assert peer.recv(10) == b"%d" % number
                assert s.recv(1) == b""


def refused() -> None:
    with kernel.create_server((HOME, 0)) as listener:
        free = listener.getsockname()
    try:
        xts_socket.create_connection(free, timeout=DEADLINE_S)
    except OSError as error:
        assert error.errno == errno.ECONNREFUSED, error
    else:
        raise AssertionError("nobody listens there")


def listen() -> None:
    with xts_socket.create_server((HOME, 0)) as listener:
        listener.settimeout(DEADLINE_S)
        with kernel.create_connection(listener.getsockname()) as client:
            client.settimeout(DEADLINE_S)
            connection, address = listener.accept()
            assert address == client.getsockname()
            with connection:
                connection.sendall(b"hello")
                assert client.recv(10) == b"hello"
            assert client.recv(1) == b""


def datagrams() -> None:
    with kernel.socket(type=kernel.SOCK_DGRAM) as peer, xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as s:
        peer.bind((HOME, 0))
        for each in (peer, s):
            each.settimeout(DEADLINE_S)
        for size in (0, 1, 1400, 60_000):
            assert s.sendto(bytes(size), peer.getsockname()) == size
            data, sender = peer.recvfrom(1 << 16)
            assert len(data) == size
            peer.sendto(data + b"!", sender)
            assert s.recvfrom(1 << 16) == (data + b"!", peer.getsockname())


def names() -> None:
    found = xts_socket.getaddrinfo(sys.argv[1], 80, kernel.AF_INET, kernel.SOCK_STREAM)
    assert [entry[4] for entry in found] == [(sys.argv[2], 80)], found


def stamps() -> None:
    with kernel.socket(type=kernel.SOCK_DGRAM) as peer, xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as s:
        s.settimeout(DEADLINE_S)
        s.bind((HOME, 0))
        s.setsockopt(kernel.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        peer.sendto(b"x", s.getsockname())
        _, control, _, _ = s.recvmsg(10, 200)
        assert [kind for _, kind, _ in control] == [SO_TIMESTAMPNS], control


def filters() -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in FILTER))
    program = struct.pack("HxxxxxxP", len(FILTER), ctypes.addressof(code))
    with kernel.socket(type=kernel.SOCK_DGRAM) as peer, xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as s:
        s.settimeout(DEADLINE_S)
        s.bind((HOME, 0))
        s.setsockopt(kernel.SOL_SOCKET, SO_ATTACH_FILTER, program)
        for word in (b"bird", b"ant"):
            peer.sendto(word, s.getsockname())
        assert s.recv(10) == b"ant"


def errors() -> None:
    """What the network says of a datagram comes with its text."""
    with kernel.socket(type=kernel.SOCK_DGRAM) as nobody, xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as s:
        nobody.bind((HOME, 0))
        port = nobody.getsockname()[1]
        nobody.close()
        s.settimeout(DEADLINE_S)
        s.setsockopt(kernel.IPPROTO_IP, IP_RECVERR, 1)
        s.sendto(b"lost", (HOME, port))
        with contextlib.suppress(ConnectionRefusedError):
            s.recv(10)
        data, control, _, _ = s.recvmsg(10, 200, kernel.MSG_ERRQUEUE)
        assert data == b"lost" and [kind for _, kind, _ in control] == [IP_RECVERR], (data, control)


def groups() -> None:
    """Each member of a group gets what is sent to it."""
    member = kernel.inet_aton(GROUP) + kernel.inet_aton(HOME)
    with (
        kernel.socket(type=kernel.SOCK_DGRAM) as peer,
        xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as first,
        xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as second,
    ):
        for s in (first, second):
            s.settimeout(DEADLINE_S)
            s.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEADDR, 1)
            s.bind(("0.0.0.0", first.getsockname()[1] if s is second else 0))
            s.setsockopt(kernel.IPPROTO_IP, kernel.IP_ADD_MEMBERSHIP, member)
        peer.setsockopt(kernel.IPPROTO_IP, kernel.IP_MULTICAST_IF, kernel.inet_aton(HOME))
        peer.sendto(b"all", (GROUP, first.getsockname()[1]))
        for s in (first, second):
            assert s.recv(10) == b"all"


def outcome(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except OSError as error:
        return f"{errno.errorcode.get(error.errno or 0, type(error).__name__)}: {error}"
    except AssertionError as error:
        return f"AssertionError: {error}"
    return "ok"


ATTEMPTS = (connect, many, refused, listen, datagrams, names, stamps, filters, errors, groups)
print(json.dumps({attempt.__name__: outcome(attempt) for attempt in ATTEMPTS}))
