"""Protocols pushed by ioctl() under the interposer; the proxy has an identity for TLS."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.authority import Authority, tls_tables
from beds.preload import ALL, PreloadBed, preload_bed, preload_library
from system.interposer.programs.preload_scripts import PUSHES
from xts_lab.lab import Lab

SCRIPTS = str(Path(__file__).with_name("programs") / "preload_scripts.py")
RULES = {
    "refused_on_kernel_sockets": "use xts tcp_client 192.0.2.1:*\nuse os tcp_client *:*\nuse os tcp_server *:*\n",
    "a_bound_one_with_protocols_does_not_go_back": (
        "use os tcp_client *:*\nuse xts tcp_server 127.0.0.2:*\nuse os tcp_server *:*\n"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pushes")


@pytest.fixture(scope="module")
def bed(folder: Path, xts_authority: Authority) -> Iterator[PreloadBed]:
    with preload_bed(folder, tls_tables(folder, xts_authority)) as made:
        yield made


@pytest.mark.parametrize("name", sorted(PUSHES))
def test_program(name: str, bed: PreloadBed, folder: Path) -> None:
    bed.run([sys.executable, SCRIPTS, name], rules=RULES.get(name, ALL), env={"TLS_FOLDER": str(folder)})


HALF = """
import errno, fcntl, socket, struct, sys
with socket.socket() as listener:
    if sys.argv[1] == "undecided":
        fcntl.ioctl(listener, 0x89EB, struct.pack("=i", 1))  # SIOC_PEEK_MODE
    listener.bind(("", 0))
    if sys.argv[1] == "bound":
        fcntl.ioctl(listener, 0x89EB, struct.pack("=i", 1))
    listener.listen()
    print(socket.socket().connect_ex(("127.0.0.1", listener.getsockname()[1])))
"""


@pytest.mark.parametrize(
    ("when", "expected"), [("never", 0), ("undecided", errno.ECONNREFUSED), ("bound", errno.ECONNREFUSED)]
)
def test_a_wildcard_listener_with_protocols_is_the_devices_alone(when: str, expected: int, lab: Lab) -> None:
    """Through the kernel's half, which this host's own clients reach, data would come without them."""
    command = [sys.executable, "-c", HALF, when]
    done = lab.run("host", command, environment={"LD_PRELOAD": preload_library()}, capture_output=True)
    assert int(done.stdout) == expected, done.stderr
