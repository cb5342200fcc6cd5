"""Calls on sockets with keys of TLS, the kernel's way (linux/tls.h), and what they give. The same on the kernel's
sockets, where it has TLS, and on offloaded ones. The peer sends back what it is sent, so that with one key for both
ways one reads one's own records.

    python ktls_scripts.py NAME PORT
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from beds.scripts import apart, script, scripts

SOL_TLS, TLS_TX, TLS_RX, TLS_TX_ZEROCOPY_RO, TLS_RX_EXPECT_NO_PAD = 282, 1, 2, 3, 4
TLS_SET_RECORD_TYPE, TLS_GET_RECORD_TYPE = 1, 2
TCP_ULP = 31
ALERT, HANDSHAKE, DATA = 21, 22, 23
WAIT_S = 10.0


def info(version: int = 0x0303, cipher: int = 51, key: int = 1, size: int = 40) -> bytes:
    """struct tls12_crypto_info_aes_gcm_128 (or what claims to be one), for the first record."""
    head = struct.pack("<HH", version, cipher)
    return (head + bytes([key]) * (size - 12) + bytes(8)) if size > 12 else head[:size]


TLS12, TLS13 = info(), info(0x0304)


def fails(number: int, call: Callable[..., object], *arguments: object) -> None:
    try:
        result = call(*arguments)
    except OSError as error:
        if error.errno == number:
            return
        result = error
    raise AssertionError(f"{call}{arguments}: {result!r}, not {errno.errorcode[number]}")


def has_tls() -> bool:
    return Path("/proc/net/tls_stat").exists()


def connected(port: int) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    s.setblocking(True)
    return s


def with_keys(port: int, keys: bytes = TLS12) -> socket.socket:
    s = connected(port)
    s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
    s.setsockopt(SOL_TLS, TLS_TX, keys)
    s.setsockopt(SOL_TLS, TLS_RX, keys)
    return s


def receive(s: socket.socket, bytes_: int) -> bytes:
    got = b""
    while len(got) < bytes_:
        part = s.recv(bytes_ - len(got))
        assert part, f"the end, after {len(got)} bytes of {bytes_}"
        got += part
    return got


def record_type(ancillary: list[tuple[int, int, bytes]]) -> int:
    ((level, kind, data),) = ancillary
    assert (level, kind) == (SOL_TLS, TLS_GET_RECORD_TYPE)
    return data[0]


def send_record(s: socket.socket, data: bytes, kind: int) -> None:
    assert s.sendmsg([data], [(SOL_TLS, TLS_SET_RECORD_TYPE, bytes([kind]))]) == len(data)


# --- options ----------------------------------------------------------------------------------------------------------


@script("kernel TLS")
def tcp_ulp(port: int) -> None:
    with socket.socket() as s:
        # A socket that is undecided still is the kernel's, which may have no TLS.
        unconnected = errno.ENOTCONN if has_tls() else errno.ENOENT
        fails(unconnected, s.setsockopt, socket.IPPROTO_TCP, TCP_ULP, b"tls")
    with connected(port) as s:
        assert s.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 16) == b""
        fails(errno.ENOENT, s.setsockopt, socket.IPPROTO_TCP, TCP_ULP, b"none such")
        fails(errno.ENOENT, s.setsockopt, socket.IPPROTO_TCP, TCP_ULP, b"tlsx")
        fails(errno.EINVAL, s.setsockopt, socket.IPPROTO_TCP, TCP_ULP, b"")
        fails(errno.ENOPROTOOPT, s.setsockopt, SOL_TLS, TLS_TX, TLS12)
        fails(errno.EOPNOTSUPP, s.getsockopt, SOL_TLS, TLS_TX, 4)
        s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls\0")
        fails(errno.EEXIST, s.setsockopt, socket.IPPROTO_TCP, TCP_ULP, b"tls")
        assert s.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 16) == b"tls".ljust(16, b"\0")
        assert s.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 3) == b"tls"
        s.sendall(b"as it is")  # without keys nothing changes
        assert receive(s, 8) == b"as it is"


@script("kernel TLS")
def keys(port: int) -> None:
    with connected(port) as s:
        s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        for option in TLS_TX, TLS_RX:
            fails(errno.EBUSY, s.getsockopt, SOL_TLS, option, 4)
            for wrong in (b"", b"\3\3\x33", info(0x0302), info(0x0305), info(cipher=99), info(size=39), info(size=41)):
                fails(errno.EINVAL, s.setsockopt, SOL_TLS, option, wrong)
        s.setsockopt(SOL_TLS, TLS_TX, TLS12)
        assert s.getsockopt(SOL_TLS, TLS_TX, 4) == TLS12[:4]
        fails(errno.EINVAL, s.getsockopt, SOL_TLS, TLS_TX, 3)
        fails(errno.EINVAL, s.getsockopt, SOL_TLS, TLS_TX, 41)
        fails(errno.EBUSY, s.getsockopt, SOL_TLS, TLS_RX, 4)
        fails(errno.EINVAL, s.setsockopt, SOL_TLS, TLS_RX, TLS13)
        fails(errno.EINVAL, s.setsockopt, SOL_TLS, TLS_RX, info(cipher=52, size=56))
        s.setsockopt(SOL_TLS, TLS_RX, TLS12)
        for option in TLS_TX, TLS_RX:
            fails(errno.EBUSY, s.setsockopt, SOL_TLS, option, TLS12)


@script("kernel TLS")
def other_options(port: int) -> None:
    with with_keys(port, TLS13) as s:
        for option in 0, 77:
            fails(errno.ENOPROTOOPT, s.setsockopt, SOL_TLS, option, 1)
            fails(errno.ENOPROTOOPT, s.getsockopt, SOL_TLS, option)
        for option in TLS_TX_ZEROCOPY_RO, TLS_RX_EXPECT_NO_PAD:
            assert s.getsockopt(SOL_TLS, option) == 0
            s.setsockopt(SOL_TLS, option, 1)
            assert s.getsockopt(SOL_TLS, option) == 1
            fails(errno.EINVAL, s.setsockopt, SOL_TLS, option, 2)
            fails(errno.EINVAL, s.setsockopt, SOL_TLS, option, b"\1")
        s.sendall(b"still")
        assert receive(s, 5) == b"still"


# --- data -------------------------------------------------------------------------------------------------------------


@script("kernel TLS")
def data(port: int) -> None:
    sent = bytes(range(256)) * 200
    for chosen in TLS12, TLS13:
        with with_keys(port, chosen) as s:
            s.sendall(sent)
            assert receive(s, len(sent)) == sent
            s.sendall(b"peeked")
            assert s.recv(3, socket.MSG_PEEK) == b"pee"
            assert receive(s, 6) == b"peeked"


@script("kernel TLS")
def records_have_a_type(port: int) -> None:
    for chosen in TLS12, TLS13:
        with with_keys(port, chosen) as s:
            s.sendall(b"data")
            send_record(s, b"\1\0", ALERT)
            s.sendall(b"more")
            got, ancillary, _, _ = s.recvmsg(100, 100)
            assert (got, record_type(ancillary)) == (b"data", DATA)
            fails(errno.EIO, s.recv, 100)  # who does not ask for its type must not take it for data
            got, ancillary, flags, _ = s.recvmsg(100, 100)
            assert (got, record_type(ancillary)) == (b"\1\0", ALERT)
            assert flags & socket.MSG_EOR
            assert receive(s, 4) == b"more"


@script("kernel TLS")
def a_record_in_parts(port: int) -> None:
    with with_keys(port) as s:
        send_record(s, b"handshake", HANDSHAKE)
        got, ancillary, flags, _ = s.recvmsg(4, 100)
        assert (got, record_type(ancillary), flags & socket.MSG_EOR) == (b"hand", HANDSHAKE, 0)
        got, ancillary, flags, _ = s.recvmsg(100, 100)
        assert (got, record_type(ancillary), flags & socket.MSG_EOR) == (b"shake", HANDSHAKE, socket.MSG_EOR)


@script("kernel TLS")
def what_was_unread_is_decrypted(port: int) -> None:
    """Records that came before their keys, as they do in a handshake."""
    with connected(port) as s:
        s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        s.sendall(b"plain")
        s.setsockopt(SOL_TLS, TLS_TX, TLS13)
        s.sendall(b"secret")
        wire = 5 + 6 + 1 + 16
        assert receive(s, 5) == b"plain"
        while len(s.recv(1000, socket.MSG_PEEK)) < wire:
            select.select([s], [], [], 0.01)
        s.setsockopt(SOL_TLS, TLS_RX, TLS13)
        assert receive(s, 6) == b"secret"
        s.sendall(b"next")
        assert receive(s, 4) == b"next"


@script("kernel TLS")
def a_bad_record(port: int) -> None:
    with connected(port) as s:
        s.sendall(b"\x17\3\3\0\x20" + bytes(32))
        s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        s.setsockopt(SOL_TLS, TLS_RX, TLS12)
        fails(errno.EBADMSG, s.recv, 100)


@script("kernel TLS")
def sendfile(port: int) -> None:
    content = os.urandom(300_000)
    with tempfile.TemporaryFile() as file, with_keys(port, TLS13) as s:
        file.write(content)
        file.flush()
        sent = 0
        got = b""
        while sent < len(content):
            sent += os.sendfile(s.fileno(), file.fileno(), sent, 50_000)
            got += receive(s, sent - len(got))
        assert got == content


@script("kernel TLS")
def without_blocking(port: int) -> None:
    with with_keys(port) as s:
        s.setblocking(False)
        fails(errno.EAGAIN, s.recv, 100)
        assert s.send(b"data") == 4
        assert select.select([s], [], [], WAIT_S)[0]
        assert s.recv(100) == b"data"


@script("kernel TLS")
def the_end(port: int) -> None:
    with with_keys(port) as s:
        s.sendall(b"last")
        s.shutdown(socket.SHUT_WR)
        assert receive(s, 4) == b"last"
        assert s.recv(100) == b""


@script("kernel TLS")
def other_keys(port: int) -> None:
    """As since Linux 6.14."""
    second = info(0x0304, key=2)
    with with_keys(port, TLS13) as s:
        send_record(s, b"\x18\0\0\1\0", HANDSHAKE)
        s.setsockopt(SOL_TLS, TLS_TX, second)
        s.sendall(b"new")
        got, ancillary, _, _ = s.recvmsg(100, 100)
        assert (got, record_type(ancillary)) == (b"\x18\0\0\1\0", HANDSHAKE)
        fails(errno.EKEYEXPIRED, s.recv, 100)
        fails(errno.EINVAL, s.setsockopt, SOL_TLS, TLS_RX, info(0x0304, cipher=52, size=56))
        s.setsockopt(SOL_TLS, TLS_RX, second)
        assert receive(s, 3) == b"new"


# --- over fork and exec -----------------------------------------------------------------------------------------------


def ends_well(pid: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def unread(port: int, chosen: bytes) -> socket.socket:
    """Data is there that nobody has read, and half of a record that is none."""
    s = with_keys(port, chosen)
    send_record(s, b"handshake", HANDSHAKE)
    s.sendall(b"unread")
    got, ancillary, _, _ = s.recvmsg(4, 100)
    assert (got, record_type(ancillary)) == (b"hand", HANDSHAKE)
    return s


def goes_on(s: socket.socket, chosen: bytes) -> None:
    """What another process has begun."""
    assert s.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 16) == b"tls".ljust(16, b"\0")
    for option in TLS_TX, TLS_RX:
        assert s.getsockopt(SOL_TLS, option, 4) == chosen[:4]
    got, ancillary, flags, _ = s.recvmsg(100, 100)
    assert (got, record_type(ancillary), flags & socket.MSG_EOR) == (b"shake", HANDSHAKE, socket.MSG_EOR)
    assert receive(s, 6) == b"unread"
    sent = bytes(range(256)) * 200
    s.sendall(sent)
    assert receive(s, len(sent)) == sent
    send_record(s, b"\1\0", ALERT)
    got, ancillary, _, _ = s.recvmsg(100, 100)
    assert (got, record_type(ancillary)) == (b"\1\0", ALERT)


@script("kernel TLS")
def a_child_goes_on(port: int) -> None:
    for chosen in TLS12, TLS13:
        with unread(port, chosen) as s:
            pid = os.fork()
            if not pid:
                goes_on(s, chosen)
                os._exit(0)
            ends_well(pid)


@script("kernel TLS")
def the_next_program_goes_on(port: int) -> None:
    for chosen in TLS12, TLS13:
        with unread(port, chosen) as s:
            s.set_inheritable(True)
            pid = os.fork()
            if not pid:
                os.execv(sys.executable, [sys.executable, __file__, "go_on", str(s.fileno()), chosen.hex()])
            ends_well(pid)


@script("kernel TLS")
def the_program_itself_goes_on(port: int) -> None:
    """Without a fork between; the keys, which are its own process's, are kept."""
    pid = os.fork()
    if not pid:
        s = unread(port, TLS13)
        s.set_inheritable(True)
        os.execv(sys.executable, [sys.executable, __file__, "go_on", str(s.fileno()), TLS13.hex()])
    ends_well(pid)


@script("kernel TLS")
def keys_that_have_expired_over_exec(port: int) -> None:
    """As since Linux 6.14."""
    second = info(0x0304, key=2)
    with with_keys(port, TLS13) as s:
        send_record(s, b"\x18\0\0\1\0", HANDSHAKE)
        s.setsockopt(SOL_TLS, TLS_TX, second)
        s.sendall(b"new")
        assert s.recvmsg(100, 100)[0] == b"\x18\0\0\1\0"
        s.set_inheritable(True)
        pid = os.fork()
        if not pid:
            os.execv(sys.executable, [sys.executable, __file__, "change_keys", str(s.fileno()), second.hex()])
        ends_well(pid)


def change_keys(s: socket.socket, second: bytes) -> None:
    fails(errno.EKEYEXPIRED, s.recv, 100)
    s.setsockopt(SOL_TLS, TLS_RX, second)
    assert receive(s, 3) == b"new"
    s.sendall(b"on")
    assert receive(s, 2) == b"on"


#: What runs after exec: with the socket's descriptor, and keys.
NEXT = {"go_on": goes_on, "change_keys": change_keys}


def hold(port: int, key: bytes) -> None:
    """Not run with the others: talks with this key, and closes and ends when it is told to (SIGUSR1)."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    with with_keys(port, TLS12[:12] + key + TLS12[12 + 16 :]) as s:
        s.sendall(b"data")
        assert receive(s, 4) == b"data"
        print("talked", flush=True)
        signal.sigwait({signal.SIGUSR1})
    print("closed", flush=True)
    signal.sigwait({signal.SIGUSR1})


SCRIPTS = scripts("kernel TLS")

if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(int(sys.argv[2]), bytes.fromhex(sys.argv[3]))
    elif sys.argv[1] in NEXT:
        NEXT[sys.argv[1]](socket.socket(fileno=int(sys.argv[2])), bytes.fromhex(sys.argv[3]))
    else:
        SCRIPTS[apart(sys.argv[1])](int(sys.argv[2]))
