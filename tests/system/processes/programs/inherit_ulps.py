"""Connections and listeners with pushed protocols that are kept over fork and exec: what is unread, and what the layers
know, is the new process's."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import ssl
import struct
import threading
from pathlib import Path

from beds.calls import Calls, address
from beds.libc_structs import Header, Vector
from beds.scripts import script
from beds.ulp_calls import end_peek, error, peek, push, recvmsg, sendmsg, sequenced
from beds.ulp_calls import tell as tell_item
from system.processes.programs.inherit_exec import after_exec, exec_prepare, execute, finds_some
from system.processes.programs.inherit_shutdown import bound, is_shut, refuses, until_it_sleeps, uses, waits
from system.processes.programs.inheriting import (
    PATIENCE_S,
    PATTERN,
    Child,
    Signal,
    accept,
    kernel_receive_all,
    poll,
    receive_all,
    workers,
)
from system.sockets.programs.library_scripts import recv, send
from system.tls.programs.ktls_scripts import (
    SOL_TLS,
    TCP_ULP,
    TLS_GET_RECORD_TYPE,
    TLS_RX,
    TLS_SET_RECORD_TYPE,
    TLS_TX,
    info,
)
from xts_messages.wire.ulps import BY_NAME

PREFIXED, LINES, TLS = (BY_NAME[name].number for name in ("LENGTH_PREFIXED", "LINES", "TLS"))
ROLE, SERVER_NAME, IDENTITY = 1, 2, 6
SERVER = 2
INFO_VERSION = 1
EOR = socket.MSG_EOR
HANDSHAKE, KEY_UPDATE = 22, bytes([24, 0, 0, 1, 0])


def prefixed(*pdus: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(pdu)) + pdu for pdu in pdus)


# --- TLS in the proxy ---------------------------------------------------------------------------------


def server_context() -> ssl.SSLContext:
    folder = Path(os.environ["TLS_FOLDER"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "localhost.pem", folder / "localhost.key")
    return context


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(Path(os.environ["TLS_FOLDER"]) / "roots.pem"))


def tls_connected(c: Calls) -> tuple[int, ssl.SSLSocket]:
    """A connection with TLS in the proxy, and its peer."""
    peers: list[ssl.SSLSocket] = []

    def shake(listener: socket.socket) -> None:
        peers.append(server_context().wrap_socket(listener.accept()[0], server_side=True))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        shaking = threading.Thread(target=shake, args=(listener,), daemon=True)
        shaking.start()
        s = c.create()
        assert push(c, s, "PUSH_ULP", TLS, [(SERVER_NAME, b"localhost".hex())]) == 0, error(c, s)
        assert c.call("connect", s, address(listener.getsockname()[1]), 16) == 0, error(c, s)
        shaking.join(PATIENCE_S)
    peers[0].settimeout(PATIENCE_S)
    return s, peers[0]


def goes_on_in_tls(c: Calls, s: int) -> None:
    assert receive_all(c, s, 199_000) == PATTERN[1000:200_000]
    assert tell_item(c, s, 0, 0, INFO_VERSION, 2) == [2, "0403"], "TLS 1.3, in the host's byte order"
    assert send(c, s, b"from another") == 12
    assert recv(c, s, 1) == b""
    assert c.call("close", s) == 0


def tls_peer_talks(peer: ssl.SSLSocket) -> None:
    peer.sendall(PATTERN[40_000:200_000])
    assert peer.recv(100) == b"from another"
    peer.unwrap()
    peer.close()


def tls_partly_read(c: Calls) -> tuple[int, ssl.SSLSocket]:
    s, peer = tls_connected(c)
    peer.sendall(PATTERN[:40_000])
    poll(c, s)
    assert recv(c, s, 1000, socket.MSG_WAITALL) == PATTERN[:1000]
    return s, peer


@script("inherit")
def tls_moves_to_a_child(c: Calls) -> None:
    s, peer = tls_partly_read(c)
    child = Child(c, lambda: goes_on_in_tls(c, s))
    assert c.call("close", s) == 0
    tls_peer_talks(peer)
    child.wait()


@after_exec
def tls_after_exec(c: Calls, sockets: dict[int, int]) -> None:
    goes_on_in_tls(c, sockets[100])


@script("inherit")
def tls_moves_to_the_next_program(c: Calls) -> None:
    s, peer = tls_partly_read(c)
    child = Child(c, lambda: execute(tls_after_exec, exec_prepare(c, s)))
    assert c.call("close", s) == 0
    tls_peer_talks(peer)
    child.wait()


@script("inherit")
def a_listener_with_tls_is_shared(c: Calls) -> None:
    s = c.create()
    assert c.call("share_listener", s) == 0
    attributes = [(ROLE, SERVER, 1), (IDENTITY, b"localhost".hex())]
    assert push(c, s, "PUSH_ULP", TLS, attributes) == 0, error(c, s)
    assert c.call("bind", s, address(0), 16) == 0 and c.call("listen", s, 16) == 0
    found = c.name("getsockname", s)
    assert found
    assert push(c, s, "PUSH_ULP", LINES) == -errno.EBUSY
    text = error(c, s)
    assert text[0] == errno.EBUSY and "shared" in text[2], text

    said = set()
    with workers(c, s, 3):
        for _ in range(12):
            with (
                socket.create_connection(("127.0.0.1", found[1]), timeout=PATIENCE_S) as raw,
                client_context().wrap_socket(raw, server_hostname="localhost") as peer,
            ):
                said.add(kernel_receive_all(peer))
    assert said and said <= {b"0", b"1", b"2"}


def tls_listener(c: Calls) -> tuple[int, int]:
    """One that may be shared, and its port."""
    s, port = bound(c)
    attributes = [(ROLE, SERVER, 1), (IDENTITY, b"localhost".hex())]
    assert push(c, s, "PUSH_ULP", TLS, attributes) == 0, error(c, s)
    assert c.call("listen", s, 16) == 0
    return s, port


def tls_asks(c: Calls, port: int) -> bytes:
    context = client_context()
    with (
        c.tcp_client(port) as raw,
        context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False) as peer,
    ):
        return kernel_receive_all(peer)


@script("inherit")
def a_listener_with_tls_ends_accept_of_all(c: Calls) -> None:
    """shutdown() of it, in a child. Who shakes hands is reset. It keeps its protocol, and may listen again."""
    (s, port), ready, go = tls_listener(c), Signal(), Signal()

    def shuts() -> None:
        go.wait()
        assert c.call("shutdown", s, socket.SHUT_RDWR) == 0

    first, second = Child(c, lambda: waits(c, s, ready)), Child(c, shuts)
    ready.wait()
    until_it_sleeps(first.pid)
    silent = [c.tcp_client(port) for _ in range(3)]
    go.tell()
    first.wait()
    second.wait()
    is_shut(c, s)
    for peer in silent:
        with peer, contextlib.suppress(ConnectionResetError):
            raise AssertionError(peer.recv(1))
    assert refuses(c, port)
    assert c.call("listen", s, 16) == 0
    with workers(c, s, 2):
        assert {tls_asks(c, port) for _ in range(6)} <= {b"0", b"1"}


@script("inherit")
def a_listener_with_tls_ends_what_waits(c: Calls) -> None:
    """Connections that nobody has accepted, whether their handshake is done or not, end, and not as TLS ends. What was
    accepted goes on."""
    (s, port), ended = tls_listener(c), []
    Child(c, lambda: uses(c, s)).wait()

    def client() -> None:
        try:
            ended.append(tls_asks(c, port))
        except (ConnectionError, ssl.SSLEOFError):
            ended.append(None)

    def clients(count: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=client) for _ in range(count)]
        for thread in threads:
            thread.start()
        return threads

    taken = clients(1)
    connection = accept(c, s)
    waiting = clients(5)
    assert poll(c, s) & select.POLLIN, "one handshake is done"
    assert c.call("shutdown", s, socket.SHUT_RD) == 0
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert ended == [None] * 5
    assert send(c, connection, b"goes on") == 7
    assert c.call("close", connection) == 0
    taken[0].join(PATIENCE_S)
    assert ended[5:] == [b"goes on"]


# --- PDUs ---------------------------------------------------------------------------------------------

PDUS = [b"first", PATTERN[:5000], b"", b"x", PATTERN[: 1 << 19], b"", b"last"]


def pdus_partly_read(c: Calls) -> tuple[int, socket.socket]:
    """All of the first PDU, and a part of the second."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        s = sequenced(c)
        assert s > 0 and push(c, s, "PUSH_ULP", PREFIXED) == 0, error(c, s)
        assert c.call("connect", s, address(listener.getsockname()[1]), 16) == 0
        peer = listener.accept()[0]
    peer.settimeout(PATIENCE_S)
    peer.sendall(prefixed(*PDUS[:4]))
    poll(c, s)
    assert recvmsg(c, s, 100) == [5, PDUS[0].hex(), EOR, []]
    poll(c, s)
    assert recvmsg(c, s, 2000) == [2000, PDUS[1][:2000].hex(), socket.MSG_TRUNC, []]
    assert sendmsg(c, s, 4, socket.MSG_MORE) == 4
    return s, peer


def goes_on_with_pdus(c: Calls, s: int) -> None:
    got, part = [PDUS[0]], PDUS[1][:2000]
    while len(got) < len(PDUS):
        n, data, flags, control = recvmsg(c, s, 70_000)
        assert n >= 0 and not control
        part += bytes.fromhex(data)
        if flags & EOR:
            got.append(part)
            part = b""
    assert got == PDUS, [len(pdu) for pdu in got]
    assert sendmsg(c, s, 5) == 5
    assert recvmsg(c, s, 10)[:3] == [0, "", 0]
    assert c.call("close", s) == 0


def pdu_peer_talks(peer: socket.socket) -> None:
    peer.sendall(prefixed(*PDUS[4:]))
    said = peer.recv(13, socket.MSG_WAITALL)
    assert said[:4] == struct.pack(">I", 9), said
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == b""


@script("inherit")
def pdus_move_to_a_child(c: Calls) -> None:
    s, peer = pdus_partly_read(c)
    child = Child(c, lambda: goes_on_with_pdus(c, s))
    assert c.call("close", s) == 0
    pdu_peer_talks(peer)
    child.wait()


@after_exec
def pdus_after_exec(c: Calls, sockets: dict[int, int]) -> None:
    goes_on_with_pdus(c, sockets[100])


@script("inherit")
def pdus_move_to_the_next_program(c: Calls) -> None:
    s, peer = pdus_partly_read(c)
    child = Child(c, lambda: execute(pdus_after_exec, exec_prepare(c, s)))
    assert c.call("close", s) == 0
    pdu_peer_talks(peer)
    child.wait()


# --- keys of the host's -------------------------------------------------------------------------------


def set_keys(c: Calls, s: int, option: int, key: int) -> int:
    keys = info(0x0304, key=key)
    return c.call("setsockopt", s, SOL_TLS, option, keys, len(keys))


def echo(peer: socket.socket) -> None:
    while data := peer.recv(1 << 16):
        peer.sendall(data)


def keyed(c: Calls) -> tuple[int, socket.socket]:
    """With one key for both ways, and a peer that sends back what it receives."""
    s, peer = c.connected()
    assert c.call("setsockopt", s, socket.IPPROTO_TCP, TCP_ULP, b"tls", 3) == 0
    assert set_keys(c, s, TLS_TX, 1) == set_keys(c, s, TLS_RX, 1) == 0, error(c, s)
    assert send(c, s, b"with the first") == 14
    threading.Thread(target=echo, args=(peer,), daemon=True).start()
    return s, peer


def send_record(c: Calls, s: int, kind: int, data: bytes) -> None:
    head = struct.pack("=QII", 17, SOL_TLS, TLS_SET_RECORD_TYPE)
    control = ctypes.create_string_buffer(head + bytes([kind]).ljust(8, b"\0"))
    iov = Vector(ctypes.cast(ctypes.create_string_buffer(data, len(data)), ctypes.c_void_p), len(data))
    header = Header(None, 0, ctypes.pointer(iov), 1, ctypes.cast(control, ctypes.c_void_p), 24, 0)
    assert c.call("sendmsg", s, ctypes.byref(header), 0) == len(data)


def reads_key_update(c: Calls, s: int) -> None:
    _, data, _, control = recvmsg(c, s, 100, 0, 64)
    assert bytes.fromhex(data) == KEY_UPDATE
    assert control == [(SOL_TLS, TLS_GET_RECORD_TYPE, f"{HANDSHAKE:02x}")]


def keys_move(c: Calls, expired: bool) -> None:
    s, _ = keyed(c)
    assert recv(c, s, 5, socket.MSG_WAITALL) == b"with "
    send_record(c, s, HANDSHAKE, KEY_UPDATE)
    assert set_keys(c, s, TLS_TX, 2) == 0, error(c, s)
    assert send(c, s, b"with the second") == 15
    poll(c, s)
    if expired:
        assert recv(c, s, 9, socket.MSG_WAITALL) == b"the first"
        reads_key_update(c, s)

    def child() -> None:
        if not expired:
            assert recv(c, s, 9, socket.MSG_WAITALL) == b"the first"
            reads_key_update(c, s)
        assert c.call("recv", s, ctypes.create_string_buffer(1), 1, 0) == -errno.EKEYEXPIRED
        assert set_keys(c, s, TLS_RX, 2) == 0, error(c, s)
        assert recv(c, s, 15, socket.MSG_WAITALL) == b"with the second"
        assert send(c, s, b"from the child") == 14
        assert recv(c, s, 14, socket.MSG_WAITALL) == b"from the child"
        assert c.call("close", s) == 0

    Child(c, child).wait()


@script("inherit")
def keys_move_before_they_expire(c: Calls) -> None:
    keys_move(c, False)


@script("inherit")
def keys_move_when_they_have_expired(c: Calls) -> None:
    keys_move(c, True)


# --- what does not move -------------------------------------------------------------------------------


@script("inherit")
def peek_mode_stays_with_the_parent(c: Calls) -> None:
    """How far it has read only the parent knows: the child has no connection, and the parent goes on."""
    s, peer = c.connected()
    assert peek(c, s) == 0
    peer.sendall(b"greeting" + prefixed(b"framed"))
    poll(c, s)
    assert recv(c, s, 8, socket.MSG_WAITALL) == b"greeting"

    def child() -> None:
        assert c.call("recv", s, ctypes.create_string_buffer(1), 1, 0) == -errno.ENOTCONN

    Child(c, child).wait()
    assert end_peek(c, s, 8) == 0, error(c, s)
    assert recv(c, s, 10, socket.MSG_WAITALL) == prefixed(b"framed")
    assert send(c, s, b"still mine") == 10 and peer.recv(100) == b"still mine"
    assert c.call("close", s) == 0


@script("inherit")
def peek_mode_is_not_kept_over_exec(c: Calls) -> None:
    """And does not keep others from it."""
    s, peer = c.connected()

    def program() -> None:
        mine, _ = c.connected()
        assert peek(c, mine) == 0
        execute(finds_some, exec_prepare(c, mine, s))

    Child(c, program).wait()
    assert peer.recv(1) == b"x"
