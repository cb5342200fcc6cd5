"""Filters of datagram sockets in Python and under install()."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import xts_socket
from beds.classic_bpf import SO_ATTACH_BPF, SO_ATTACH_FILTER, Program, begins_with, of_length

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0


def test_a_filter_runs_on_the_device() -> None:
    program = Program(begins_with(b"a"))
    with xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, socket.socket(type=socket.SOCK_DGRAM) as peer:
        s.settimeout(DEADLINE_S)
        s.bind(("127.0.0.1", 0))
        s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program.raw)
        for word in (b"bird", b"ant"):
            peer.sendto(word, s.getsockname())
        assert s.recv(10) == b"ant"


def test_what_cannot_be_attached_says_why() -> None:
    with xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        with pytest.raises(OSError, match="BPF program of this host's kernel") as caught:
            s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_BPF, 3)
        assert caught.value.errno == errno.EOPNOTSUPP
        with pytest.raises(OSError, match="at most 256 instructions") as caught:
            s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, Program(of_length(257)).raw)
        assert caught.value.errno == errno.ENOMEM


def test_an_operators_filter_is_named() -> None:
    """tests/system/operate/test_proxy_filter.py has proxies with some."""
    with xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        with pytest.raises(OSError, match="no filter of that name") as caught:
            s.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_FILTER, b"unknown")
        assert caught.value.errno == errno.ENOENT
        assert s.getsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_FILTER, 64) == b""
        with pytest.raises(OSError) as caught:
            s.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_FILTER, b"x" * 64)
        assert caught.value.errno == errno.EINVAL
    with xts_socket.socket() as stream:
        with pytest.raises(OSError) as caught:
            stream.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_FILTER, b"unknown")
        assert caught.value.errno == errno.ENOPROTOOPT


def test_the_example_program() -> None:
    example = Path(__file__).resolve().parents[3] / "host_lib" / "examples" / "early_filter.py"
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(example), str(port), "want", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "bound\n"
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            for word in (b"wan", b"wanted", b"", b"unwanted", b"wants"):
                client.sendto(word, ("127.0.0.1", port))
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    assert [line.split()[1] for line in said.splitlines()] == ["wanted", "wants"]
