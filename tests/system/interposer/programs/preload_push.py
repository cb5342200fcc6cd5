"""Protocols pushed by ioctl() from programs that know only their descriptors."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.scripts import script
from system.interposer.programs.interposed import (
    DEADLINE_S,
    LIBC,
    OFFLOADED,
    RULE,
    STAYED,
    Report,
    errno_of,
    kind_of,
    pair,
    wait_for_child,
)
from system.interposer.programs.preload_gone import in_child, is_elsewhere
from system.tls.programs.ktls_scripts import info
from xts_messages.wire.ulps import BY_NAME, REQUESTS

TX, RX, BOTH = (REQUESTS[name][0] for name in ("PUSH_ULP_TX", "PUSH_ULP_RX", "PUSH_ULP"))
PEEK_MODE, END_PEEK_MODE = (REQUESTS[name][0] for name in ("PEEK_MODE", "END_PEEK_MODE"))
CRYPTO_INFO = 1  # attributes
ROLE, SERVER_NAME, IDENTITY = 1, 2, 6
DATA_RECORD = b"\x17\3\3"
SYS_IOCTL = {"x86_64": 16, "aarch64": 29}[platform.machine()]


def ulp_info(number: int = BY_NAME["TLS_KEYS"].number, keys: bytes = info(0x0304)) -> bytes:
    """struct ulp_info with keys of TLS, the only protocol that needs nothing of the proxy's configuration."""
    attributes = struct.pack(">HH", CRYPTO_INFO, len(keys)) + keys
    return struct.pack("=HH", number, len(attributes)) + attributes


def push(s: socket.socket, request: int = BOTH, data: bytes | None = None) -> None:
    fcntl.ioctl(s, request, ulp_info() if data is None else data)


def receive(s: socket.socket, size: int) -> bytes:
    s.settimeout(DEADLINE_S)
    return s.recv(size, socket.MSG_WAITALL)


def tls(*attributes: tuple[int, bytes]) -> bytes:
    """struct ulp_info with TLS in the proxy."""
    data = b"".join(struct.pack(">HH", number, len(value)) + value for number, value in attributes)
    return struct.pack("=HH", BY_NAME["TLS"].number, len(data)) + data


CLIENT = tls((SERVER_NAME, b"localhost"))
SERVER = tls((ROLE, bytes([2])), (IDENTITY, b"localhost"))


@script("pushes")
def keys_pushed_onto_connections() -> None:
    client, server = pair()
    push(client, TX)
    client.sendall(b"in a record")
    head = receive(server, 5)
    assert head[:3] == DATA_RECORD, head
    assert len(receive(server, int.from_bytes(head[3:]))) == len(b"in a record") + 1 + 16
    client, server = pair()
    for request in TX, RX:
        push(client, request)
        # By its number, as programs without a C library's ioctl() make the call.
        argument = ctypes.create_string_buffer(ulp_info())
        assert LIBC.syscall(SYS_IOCTL, server.fileno(), request, argument) == 0
    client.sendall(b"question")
    assert receive(server, 8) == b"question"
    server.sendall(b"answer")
    assert receive(client, 6) == b"answer"


def context(server: bool) -> ssl.SSLContext:
    folder = Path(os.environ["TLS_FOLDER"])
    if not server:
        return ssl.create_default_context(cafile=str(folder / "roots.pem"))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "localhost.pem", folder / "localhost.key")
    return made


@contextmanager
def tls_server() -> Iterator[tuple[str, int]]:
    """Python's ssl, which says who has connected."""

    def serve() -> None:
        sock, address = listener.accept()
        sock.settimeout(DEADLINE_S)
        with context(True).wrap_socket(sock, server_side=True) as wrapped:
            wrapped.sendall(b"%5d" % address[1])
            wrapped.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        yield listener.getsockname()
        serving.join()


@script("pushes")
def pushed_before_connecting_and_onto_a_connection() -> None:
    for before in True, False:
        with tls_server() as address, socket.socket() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if before:
                push(client, BOTH, CLIENT)
            client.connect(address)
            assert kind_of(client) == OFFLOADED
            if not before:
                push(client, BOTH, CLIENT)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert receive(client, 5) == b"%5d" % client.getsockname()[1]


@script("pushes")
def pushed_onto_listeners() -> None:
    """Before bind, after it, and where the decision falls at listen."""

    def connect(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context(False).wrap_socket(raw, server_hostname="localhost") as client,
        ):
            client.sendall(b"decrypted")

    for when in ("undecided", "bound", "unbound"):
        with socket.socket() as listener:
            if when != "bound":
                push(listener, BOTH, SERVER)
            if when != "unbound":
                listener.bind(("127.0.0.1", 0))
            if when == "bound":
                push(listener, BOTH, SERVER)
            listener.listen()
            client = threading.Thread(target=connect, args=(listener.getsockname()[1],))
            client.start()
            accepted, _ = listener.accept()
            assert receive(accepted, 9) == b"decrypted", when
            client.join()
            accepted.close()


NEXT = """
import os, sys
from xts_socket.cli.sockets import attached
os.write(int(sys.argv[1]), b"from the next program")
assert os.read(int(sys.argv[1]), 100) == b"answer"
(process,) = (process for process in attached.ask(os.environ["XTS_ENDPOINT"]) if process.pid == os.getpid())
(entry,) = process.entries
assert entry.receive_layers == entry.send_layers == ("TLS",), entry
assert entry.tls.version == "TLSv1.3" and entry.tls.send, entry
"""


@script("pushes")
def tls_in_the_proxy_is_kept_over_exec() -> None:
    """And the new program's status shows it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    client.setblocking(False)
    push(client, BOTH, CLIENT)
    with context(True).wrap_socket(server, server_side=True) as wrapped:
        client.setblocking(True)
        os.set_inheritable(client.fileno(), True)
        pid = os.fork()
        if not pid:
            os.execv(sys.executable, [sys.executable, "-c", NEXT, str(client.fileno())])
        wrapped.settimeout(DEADLINE_S)
        assert wrapped.recv(100) == b"from the next program"
        wrapped.sendall(b"answer")
        wait_for_child(pid)
    client.close()


@script("pushes")
def a_handshake_under_way_stays_with_its_process() -> None:
    """Its state is nobody else's: the child is told so, and the parent goes on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    client.setblocking(False)
    push(client, BOTH, CLIENT)
    in_child(lambda: is_elsewhere(client))
    with context(True).wrap_socket(server, server_side=True, do_handshake_on_connect=False) as wrapped:
        wrapped.settimeout(DEADLINE_S)
        wrapped.do_handshake()
        wrapped.sendall(b"to the parent")
        assert receive(client, 13) == b"to the parent"
        # Now it is over, and the connection can move.
        in_child(lambda: client.sendall(b"from a child"))
        assert wrapped.recv(100) == b"from a child"
    client.close()


@script("pushes")
def peek_mode_before_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        assert errno_of(lambda: push(client, END_PEEK_MODE, struct.pack("=I", 0))) == errno.EINVAL
        push(client, PEEK_MODE, struct.pack("=i", 1))
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        server.sendall(b"greeting, then more")
        assert receive(client, 8) == b"greeting"
        push(client, END_PEEK_MODE, struct.pack("=I", 10))
        assert receive(client, 9) == b"then more"
        server.close()


@script("pushes")
def what_the_proxy_refuses_fails_the_connect() -> None:
    """And does not leave the socket to the kernel, without the protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        push(client, BOTH, ulp_info(number=999))
        assert errno_of(lambda: client.connect(listener.getsockname())) == errno.ENOPROTOOPT
        assert kind_of(client) != STAYED and Report.read().unseen == 1
        listener.setblocking(False)
        assert errno_of(listener.accept) == errno.EAGAIN
    with socket.socket() as s:
        assert errno_of(lambda: push(s, BOTH, struct.pack("=HH", 0, 0))) == errno.EINVAL
        assert errno_of(lambda: push(s, BOTH, struct.pack("=HH", 1, 500) + bytes(500))) == errno.EINVAL
        for _ in range(2):  # together they are more than one record of the interposer's holds
            push(s, BOTH, struct.pack("=HH", 1, 470) + bytes(470))


@script("pushes")
def sockets_that_speak_no_tcp() -> None:
    """There the numbers may be another protocol's."""
    for s in (*socket.socketpair(), socket.socket(type=socket.SOCK_DGRAM)):
        assert errno_of(lambda s=s: push(s)) in (errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP)  # type: ignore[misc]
        s.close()


@script("pushes")
def refused_on_kernel_sockets() -> None:
    """The rules leave all to the kernel."""
    client, server = pair()
    assert kind_of(client) == STAYED
    for s in client, server:
        assert errno_of(lambda s=s: push(s)) == errno.EOPNOTSUPP  # type: ignore[misc]
    assert Report.read().unseen == 2
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as undecided:
        push(undecided, BOTH, CLIENT)
        for _ in range(2):
            assert errno_of(lambda: undecided.connect(listener.getsockname())) == errno.EOPNOTSUPP
        assert errno_of(undecided.listen) == errno.EOPNOTSUPP
        listener.setblocking(False)
        assert errno_of(listener.accept) == errno.EAGAIN
    assert Report.read().unseen == 5


@script("pushes")
def a_bound_one_with_protocols_does_not_go_back() -> None:
    """The rules offload servers at 127.0.0.2, and leave clients to the kernel."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        assert kind_of(s) == OFFLOADED
        push(s, BOTH, CLIENT)
        assert errno_of(lambda: s.connect(listener.getsockname())) == errno.EOPNOTSUPP
        assert kind_of(s) == OFFLOADED and RULE not in {
            reason for kind, _, reason in Report.read().entries.values() if kind == OFFLOADED
        }
