"""To whom a process sends its files of relatives, and by which word (native/attaching/tell_relatives.c)."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.native_core import NATIVE, compiler
from cffi import FFI
from xts_messages.attaching.attach_messages import RELATIVES, RELATIVES_OVER
from xts_messages.native import lib

SOURCE = """
#include "attaching/attach.h"
void tell(uint32_t kind, uint32_t relayed, uint32_t wants, bool over, int connection, int fd);
void tell(uint32_t kind, uint32_t relayed, uint32_t wants, bool over, int connection, int fd)
{
	struct xts_attachment a = { .connection = connection };

	a.reply.kind = kind;
	a.reply.relayed = relayed;
	a.reply.relatives = wants;
	xts_attach_tell_relatives(&a, fd, over);
}
"""
SHM, AFXDP = int(lib.XTS_QUEUE_SHM), int(lib.XTS_QUEUE_AFXDP)
#: Kind, number behind a relay, does the server want them, does the proxy take OVER: what is sent.
CASES = {
    "a proxy": (SHM, 0, 1, True, RELATIVES),
    "a proxy that is older than OVER": (SHM, 0, 1, False, RELATIVES),
    "a proxy that wants none": (SHM, 0, 0, True, b""),
    "an agent": (AFXDP, 0, 1, True, RELATIVES_OVER),
    "an agent whose proxy is older": (AFXDP, 0, 1, False, b""),
    "an agent that is older": (AFXDP, 0, 0, True, b""),
    "a relay's agent": (SHM, 5, 1, True, RELATIVES_OVER),
    "a relay's agent whose proxy is older": (SHM, 5, 1, False, b""),
}

Tell = Callable[..., None]


@pytest.fixture(scope="module")
def tell(tmp_path_factory: pytest.TempPathFactory) -> Tell:
    place = tmp_path_factory.mktemp("tell")
    (place / "tell.c").write_text(SOURCE)
    made = place / "tell.so"
    sources = [str(place / "tell.c"), str(NATIVE / "attaching" / "tell_relatives.c")]
    options = ["-std=gnu11", f"-I{NATIVE}", "-D_GNU_SOURCE", "-shared", "-fPIC"]
    subprocess.run([compiler(), *options, *sources, "-o", str(made)], check=True)
    ffi = FFI()
    ffi.cdef("void tell(uint32_t kind, uint32_t relayed, uint32_t wants, bool over, int connection, int fd);")
    loaded = ffi.dlopen(str(made))

    def send(*words: int) -> None:
        loaded.tell(*words)

    return send


@pytest.mark.parametrize("case", CASES)
def test_who_is_told(tell: Tell, case: str, tmp_path: Path) -> None:
    *words, expected = CASES[case]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, (tmp_path / "file").open("w+") as file:
        tell(*words, ours.fileno(), file.fileno())
        ours.close()
        data, fds, _, _ = socket.recv_fds(theirs, 64, 2)
        assert (data, len(fds)) == (expected, bool(expected))
        for fd in fds:
            assert os.path.sameopenfile(fd, file.fileno())
            os.close(fd)
