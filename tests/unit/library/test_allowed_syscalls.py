"""The system calls of workers, with their arguments: what is not on the list ends the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from xts_proxy._native import lib

FORBIDDEN = 159
PROGRAM = """
import fcntl, os, socket, struct, sys
from xts_proxy._native import lib
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.fileno()
assert lib.xts_calls_only(lib.XTS_CALLS_OF_WORKERS) == 0
try:
    {call}
except OSError as error:
    os._exit(error.errno)
os._exit(0)
"""
INET = "socket.AF_INET, socket.SOCK_{}"


def ended(call: str) -> int:
    """0, an errno, or FORBIDDEN."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], check=False, timeout=60)
    return done.returncode


pytestmark = pytest.mark.skipif(bool(lib.xts_calls_sanitized()), reason="sanitizers make calls of their own")


@pytest.mark.parametrize("kind", ["STREAM", "DGRAM", "STREAM, 6", "DGRAM, 17", "STREAM | socket.SOCK_NONBLOCK"])
def test_sockets_of_tcp_and_udp(kind: str) -> None:
    assert ended(f"socket.socket(socket.AF_INET, socket.SOCK_{kind})") == 0
    assert ended(f"socket.socket(socket.AF_INET6, socket.SOCK_{kind})") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "socket.AF_INET, socket.SOCK_SEQPACKET, 132",  # SCTP
        "socket.AF_INET, socket.SOCK_STREAM, 132",
        "socket.AF_INET, 6, 33",  # DCCP
        "socket.AF_INET, socket.SOCK_RAW, 1",
        "socket.AF_INET, socket.SOCK_DGRAM, 1",  # ICMP
        "socket.AF_INET, socket.SOCK_DGRAM, 136",  # UDP-Lite
        "socket.AF_INET, socket.SOCK_STREAM, 256",
        "socket.AF_UNIX, socket.SOCK_STREAM",
        "socket.AF_PACKET, socket.SOCK_DGRAM",
    ],
)
def test_no_others(arguments: str) -> None:
    assert ended(f"socket.socket({arguments})") == FORBIDDEN


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 0)", 0),
        ("fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())", FORBIDDEN),
        ("fcntl.fcntl(sock, 10, 9)", FORBIDDEN),  # F_SETSIG
        ("fcntl.fcntl(sock, fcntl.F_SETFL, os.O_ASYNC)", FORBIDDEN),
        ("fcntl.ioctl(sock, 0x541B, bytes(4))", 0),  # FIONREAD
        ("fcntl.ioctl(sock, 0x8902, bytes(4))", FORBIDDEN),  # SIOCSPGRP
        ("fcntl.ioctl(sock, 0x5452, bytes(4))", FORBIDDEN),  # FIOASYNC
    ],
)
def test_descriptors_send_no_signals(call: str, result: int) -> None:
    assert ended(call) == result
