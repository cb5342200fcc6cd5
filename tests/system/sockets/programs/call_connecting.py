"""Scripts of calls: creating, connecting, listening."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time

from beds.calls import DEADLINE_S, SIOCOUTQ, Calls, address, reset, until
from beds.scripts import script
from xts_lab.free_ports import free_port

# --- creating, connecting -----------------------------------------------------------------------------


@script("calls")
def socket_arguments(c: Calls) -> None:
    for family, kind, protocol in ((77, 1, 0), (2, 99, 0), (2, 1, 77), (10, 1, 6), (2, 1, 6)):
        r = c.call("socket", family, kind, protocol)
        c.note("socket", errno.errorcode[-r] if r < 0 else "socket")
        if r >= 0:
            c.opened.append(r)


@script("calls")
def connect_and_names(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create()
        c.name("getsockname", s)
        c.name("getpeername", s)
        c.connect(s, server.getsockname()[1])
        peer, where = server.accept()
        mine = c.name("getsockname", s)
        theirs = c.name("getpeername", s)
        c.note("addresses agree", mine == where and theirs == server.getsockname())
        c.connect(s, server.getsockname()[1])
        c.events(s)
        c.send(s, b"hello")
        c.note("peer", peer.recv(100).hex())
        peer.sendall(b"world")
        c.recv(s, 100)
        c.close(s)
        c.note("peer", peer.recv(100).hex())
        c.do("send", s, b"x", 1, 0)
        c.do("close", s)
        peer.close()


@script("calls")
def connect_v6(c: Calls) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        s = c.create(socket.AF_INET6)
        c.connect(s, server.getsockname()[1], "::1")
        peer, _ = server.accept()
        c.name("getsockname", s)
        c.name("getpeername", s)
        c.connect(s, server.getsockname()[1], "127.0.0.1")
        peer.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create(socket.AF_INET6)
        c.connect(s, server.getsockname()[1], "::ffff:127.0.0.1")
        c.name("getpeername", s)


@script("calls")
def connect_refused(c: Calls) -> None:
    port = free_port()
    s = c.create()
    c.connect(s, port)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s)
    c.recv(s, 10)
    c.send(s, b"x")
    c.connect(s, port)
    with socket.create_server(("127.0.0.1", port)):
        c.connect(s, port)


@script("calls")
def connect_bad_address(c: Calls) -> None:
    s = c.create()
    where = address(1)
    c.do("connect", s, where, 1)
    c.do("connect", s, where, 8)
    c.do("connect", s, struct.pack("=H", 77) + bytes(14), 16)
    c.do("connect", s, address(1, "::1"), 28)
    v6 = c.create(socket.AF_INET6)
    c.do("connect", v6, where, 16)
    c.do("connect", v6, where + bytes(12), 28)
    c.do("connect", -1, where, 16)
    c.do("connect", 0x3FFFFFFF, where, 16)


@script("calls")
def connect_where_nobody_can(c: Calls) -> None:
    """Told at once, as by the kernel, and the socket is as before: it can be connected elsewhere."""
    both = socket.create_server(("::1", 0), family=socket.AF_INET6), socket.create_server(("127.0.0.1", 0))
    with both[0] as server, both[1] as v4:
        port, v4_port = server.getsockname()[1], v4.getsockname()[1]
        for flags in (0, socket.SOCK_NONBLOCK):
            s = c.create(socket.AF_INET, flags)
            for host in ("224.0.0.1", "239.255.255.250", "255.255.255.255"):
                c.connect(s, 1, host)
            c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
            c.events(s)
            c.connect(s, v4_port)
            c.wait(s, select.POLLOUT)
            t = c.create(socket.AF_INET6, flags)
            for host in ("fe80::1", "ff02::1", "::ffff:224.0.0.1", "::ffff:255.255.255.255"):
                c.connect(t, 1, host)
            c.do("setsockopt", t, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, struct.pack("=i", 1), 4)
            c.connect(t, v4_port, "::ffff:127.0.0.1")
            c.do("setsockopt", t, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, struct.pack("=i", 0), 4)
            c.connect(t, port, "::1")
            c.wait(t, select.POLLOUT)
            for own, other in (("::1", "::ffff:127.0.0.1"), ("::ffff:127.0.0.1", "::1")):
                bound = c.create(socket.AF_INET6, flags)
                c.bind(bound, 0, own)
                c.connect(bound, v4_port if "." in other else port, other)


@script("calls")
def connect_nonblocking(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create(flags=socket.SOCK_NONBLOCK)
        c.connect(s, server.getsockname()[1])
        c.wait(s, select.POLLOUT)
        c.events(s)
        c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
        c.connect(s, server.getsockname()[1])
        c.connect(s, server.getsockname()[1])
        c.recv(s, 10)
        c.send(s, b"x")


@script("calls")
def connect_nonblocking_refused(c: Calls) -> None:
    port = free_port()
    s = c.create(flags=socket.SOCK_NONBLOCK)
    c.connect(s, port)
    c.wait_error(s)
    c.events(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s)
    c.recv(s, 10)
    c.send(s, b"x")
    c.connect(s, port)


@script("calls")
def connect_nonblocking_refused_told_by_connect(c: Calls) -> None:
    port = free_port()
    s = c.create(flags=socket.SOCK_NONBLOCK)
    c.connect(s, port)
    c.wait_error(s)
    c.connect(s, port)
    with socket.create_server(("127.0.0.1", port)):
        c.connect(s, port)
        c.wait(s, select.POLLOUT)
        c.connect(s, port)


@script("calls")
def connect_nonblocking_asked_by_connect_only(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = address(server.getsockname()[1])
        s = c.create(flags=socket.SOCK_NONBLOCK)
        c.do("connect", s, where, len(where))
        last = -errno.EALREADY

        def told() -> bool:
            nonlocal last
            last = c.call("connect", s, where, len(where))
            return last != -errno.EALREADY

        until(told)
        c.note("connect", last)
        c.do("connect", s, where, len(where))
        peer, mine = server.accept()
        c.note("address", c.name("getsockname", s) == mine)
        reset(peer)
        c.wait_error(s)
        c.do("connect", s, where, len(where))


@script("calls")
def connect_after_a_reset_before_anybody_asked(c: Calls) -> None:
    for bound in (None, "0.0.0.0", "127.0.0.1"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            s = c.create(flags=socket.SOCK_NONBLOCK)
            c.set(s, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
            if bound:
                c.bind(s, 0, bound)
            c.connect(s, server.getsockname()[1])
            peer, _ = server.accept()
            peer.sendall(b"never read")
            c.wait(s, select.POLLIN)
            c.send(s, b"nor this")
            reset(peer)
            c.wait(s, select.POLLHUP)
            c.name("getsockname", s)
            c.connect(s, server.getsockname()[1])
            c.name("getsockname", s)
            c.events(s)
            c.recv(s, 100)
            c.connect(s, server.getsockname()[1])
            c.wait(s, select.POLLOUT)
            c.connect(s, server.getsockname()[1])
            peer, mine = server.accept()
            c.note("address", c.name("getsockname", s) == mine)
            c.get(s, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            c.send(s, b"data")
            c.note("peer", peer.recv(100).hex())
            peer.sendall(b"answer")
            peer.close()
            c.wait(s, select.POLLRDHUP)
            c.recv(s, 100)
            c.recv(s, 100)
            c.close(s)


@script("calls")
def connect_nonblocking_refused_told_by_recv_or_send(c: Calls) -> None:
    for call in ("recv", "send"):
        s = c.create(flags=socket.SOCK_NONBLOCK)
        c.connect(s, free_port())
        c.wait_error(s)
        if call == "recv":
            c.recv(s, 10)
            c.recv(s, 10)
        else:
            c.send(s, b"x")
            c.send(s, b"x")


@script("calls")
def connect_timeout(c: Calls) -> None:
    """Two connections fill a backlog of one; the next attempt gets no answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            s = c.create()
            c.set(s, socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100_000))
            c.connect(s, port)
            c.connect(s, port)
            c.events(s)
            c.name("getpeername", s)
            c.do("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
            c.connect(s, port)
            c.recv(s, 10)
            c.send(s, b"x")
            c.close(s)


@script("calls")
def connect_unspec(c: Calls) -> None:
    s, peer = c.connected()
    c.do("connect", s, bytes(16), 16)
    c.name("getpeername", s)
    c.events(s)
    try:
        c.note("peer", peer.recv(10).hex())
    except OSError as error:
        c.note("peer", errno.errorcode[error.errno or 0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        c.connect(s, server.getsockname()[1])
        c.name("getpeername", s)
    fresh = c.create()
    c.do("connect", fresh, bytes(16), 16)


@script("calls")
def unconnected(c: Calls) -> None:
    s = c.create()
    c.send(s, b"x")
    c.send(s, b"")
    c.recv(s, 10)
    c.recv(s, 0)
    c.name("getpeername", s)
    for how in (0, 1, 2, 3, -1):
        c.do("shutdown", s, how)
    c.accept(s)
    c.events(s)
    c.do("ioctl", s, termios.FIONREAD, ctypes.byref(number := ctypes.c_int(7)))
    c.note("number", number.value)
    for option in (socket.SO_ERROR, socket.SO_TYPE, socket.SO_ACCEPTCONN):
        c.get(s, socket.SOL_SOCKET, option)


# --- listening ----------------------------------------------------------------------------------------


@script("calls")
def bind_errors(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create()
        c.bind(s, server.getsockname()[1])
        c.bind(s, 0, length=15)
        c.bind(s, 0, length=2)
        c.do("bind", s, struct.pack("=H", 77) + bytes(14), 16)
        c.bind(s, 0, "::1")
        c.bind(s, 0, "203.0.113.7")
        c.bind(s, 0)
        c.name("getsockname", s)
        c.bind(s, 0)
        unspecified = c.create()
        c.do("bind", unspecified, bytes(16), 16)
        v6 = c.create(socket.AF_INET6)
        c.bind(v6, 0, "127.0.0.1")
        c.bind(v6, 0, "::1")
        c.name("getsockname", v6)


@script("calls")
def bound_connect(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create()
        c.set(s, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        c.bind(s, 0, "127.0.0.2")
        bound = c.name("getsockname", s)
        c.connect(s, server.getsockname()[1])
        peer, where = server.accept()
        c.note("from there", where == bound)
        c.bind(s, 0)
        c.do("listen", s, 1)
        peer.close()


@script("calls")
def listener(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.events(s)
    c.do("listen", s, 5)
    c.events(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    found = c.name("getsockname", s)
    assert found
    c.do("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
    c.accept(s)
    c.accept(s, 1)
    c.recv(s, 1)
    c.send(s, b"x")
    c.do("ioctl", s, termios.FIONREAD, ctypes.byref(ctypes.c_int()))
    c.do("ioctl", s, SIOCOUTQ, ctypes.byref(ctypes.c_int()))
    c.connect(s, 1)
    c.name("getpeername", s)
    c.do("listen", s, 10)
    with socket.create_connection(found) as peer:
        c.wait(s, select.POLLIN)
        c.events(s)
        peer.sendall(b"early")
        a = c.accept(s, socket.SOCK_NONBLOCK)
        c.do("fcntl", a, fcntl.F_GETFL)
        c.note("peer address", c.name("getpeername", a) == peer.getsockname())
        c.note("same address", c.name("getsockname", a) == found)
        c.wait(a, select.POLLIN)
        c.recv(a, 10)
        c.recv(a, 10)
        c.send(a, b"answer")
        c.note("peer", peer.recv(10).hex())
        c.accept(s)
        c.close(a)
        c.note("peer", peer.recv(10).hex())


@script("calls")
def listen_unbound(c: Calls) -> None:
    s = c.create()
    c.do("listen", s, -1)
    c.name("getsockname", s)
    c.do("listen", -1, 1)


@script("calls")
def accept_waits(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.do("listen", s, 1)
    found = c.name("getsockname", s)
    assert found
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    c.accept(s)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, bytes(16))
    thread = threading.Timer(0.05, lambda: socket.create_connection(found).close())
    thread.start()
    c.accept(s)
    thread.join()


@script("calls")
def listener_shut_down(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.do("listen", s, 1)
    found = c.name("getsockname", s)
    assert found
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(c.call("accept4", s, None, None, 0)))
    thread.start()
    time.sleep(0.05)  # the thread waits in accept, or is about to: either way the call must end
    c.do("shutdown", s, socket.SHUT_WR)
    c.do("shutdown", s, socket.SHUT_RD)
    thread.join(DEADLINE_S)
    c.note("accept", results)
    c.accept(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    with socket.socket() as peer:
        c.note("refused", peer.connect_ex(found))


@script("calls")
def closed_listener_resets_waiting_connections(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.do("listen", s, 4)
    found = c.name("getsockname", s)
    assert found
    with socket.create_connection(found) as peer:
        peer.settimeout(DEADLINE_S)
        c.wait(s, select.POLLIN)
        c.close(s)
        try:
            c.note("peer", peer.recv(10).hex())
        except OSError as error:
            c.note("peer", errno.errorcode[error.errno or 0])
