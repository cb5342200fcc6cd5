"""What CPython's C code does with arguments before it makes a system call is a part of the interface: each call here
has the same outcome on the standard class, on `xts_socket.socket`, and on install()'s class."""

from __future__ import annotations

import array
import decimal
import fractions
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import xts_socket
from beds.proxy_process import ProxyProcess

pytestmark = pytest.mark.usefixtures("xts_endpoint")

EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\nuse xts udp_receiver *:*\nuse xts udp_sender *:*\n"
SHORT_S = 0.02
PEER = ("127.0.0.1", 9)
TCP = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
REUSE = (socket.SOL_SOCKET, socket.SO_REUSEADDR)


class Index:
    """An integer of another type, as numpy's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Index({self.value})"


class Faulty:
    def __index__(self) -> int:
        raise KeyError("on purpose")


class OnlyInt:
    def __int__(self) -> int:
        return 1


class OnlyFloat:
    def __float__(self) -> float:
        return 0.5


class MyInt(int):
    pass


class MyTuple(tuple[Any, ...]):
    __slots__ = ()


LARGE = [2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**63, 2**64, -(2**31) - 1, -(2**63) - 1]
NUMBERS = [0, 1, -1, 5, Index(0), Index(5), True, 1.0, 1.5, "1", b"1", None, OnlyInt(), Faulty(), MyInt(3)]
NUMBERS += [decimal.Decimal(2), *LARGE]
SIZES = [one for one in NUMBERS if not isinstance(one, int) or abs(one) < 2**31 - 1 or abs(one) > 2**62]
TIMEOUTS = [1e-12, 1e-10, 1e-9, 1.5e-9, -0.0, 0.1, 1 / 3, 1.0000000001, float("nan"), float("inf"), 1e9, 9e9, 9.3e9]
TIMEOUTS += [1e300, -1e300, -1e-12, -1e-9, -1, 9223372036, 9223372037, 2**63 - 1, fractions.Fraction(1, 2), [], 1j]
TIMEOUTS += [decimal.Decimal("0.5"), OnlyFloat()]
BUFFERS: list[Callable[[], Any]] = [
    lambda: bytearray(10),
    bytearray,
    lambda: b"12345",
    lambda: "x",
    lambda: None,
    lambda: 3,
    lambda: [1],
    lambda: array.array("i", [1, 2, 3]),
    lambda: memoryview(b"abc"),
    lambda: memoryview(bytearray(10))[::2],
    lambda: memoryview(bytearray(10))[10:],
    lambda: memoryview(bytearray(12)).cast("B", (3, 4)),
]
ADDRESSES: list[Any] = ["127.0.0.1", None, ["127.0.0.1", 9], (), ("127.0.0.1",), ("127.0.0.1", 9, 0), ("::1", 9), 9]
ADDRESSES += [(1, 9), (None, 9), (b"127.0.0.1", 9), (bytearray(b"127.0.0.1"), 9), MyTuple(PEER), ("127.0.0.1\0", 9)]
ADDRESSES += [("\ud800", 9), (b"\xff", 9), ("a" * 70 + ".invalid", 9), (".", 9), ("\xfc.invalid", 9), ("0x7f.1", 9)]
ADDRESSES += [("127.0.0.1", port) for port in (-1, 70000, 2**70, 9.0, "9", Index(9))]
ADDRESSES_6 = [("::1", 9, number) for number in NUMBERS] + [("::1", 9, 0, number) for number in NUMBERS]
ADDRESSES_6 += [("::1", 70000), ("no.such.invalid", 2**70), ("no.such.invalid", 70000), ("::1", 9, 0, 0, 0)]
#: No method of C takes its arguments by keyword.
POSITIONAL: list[tuple[str, str, Any]] = [("recv", "bufsize", 1), ("send", "data", b"x"), ("listen", "backlog", 1)]
POSITIONAL += [("bind", "address", PEER), ("connect", "address", PEER), ("setblocking", "flag", 1)]
POSITIONAL += [("settimeout", "value", 1), ("shutdown", "how", 1), ("sendall", "data", b"x")]


class Bed:
    """Sockets of one module."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._listener = module.create_server(("127.0.0.1", 0))
        self._made: list[Any] = [self._listener]

    def _kept(self, sock: Any) -> Any:
        self._made.append(sock)
        return sock

    def new(self, *arguments: Any) -> Any:
        return self._kept(self.module.socket(*arguments))

    def new6(self) -> Any:
        return self.new(socket.AF_INET6)

    def udp(self) -> Any:
        return self.new(socket.AF_INET, socket.SOCK_DGRAM)

    def pair(self) -> tuple[Any, Any]:
        client = self._kept(self.module.create_connection(self._listener.getsockname(), 10))
        return client, self._kept(self._listener.accept()[0])

    def idle(self) -> Any:
        client, _ = self.pair()
        client.settimeout(SHORT_S)
        return client

    def listener(self) -> Any:
        return self._listener

    def waiting(self) -> Any:
        """With ten bytes to be read."""
        client, peer = self.pair()
        peer.sendall(b"abcdefghij")
        return client

    def closed(self) -> Any:
        sock = self.new()
        sock.close()
        return sock

    def clear(self) -> None:
        self.close(1)
        self._listener.settimeout(None)

    def close(self, first: int = 0) -> None:
        for sock in reversed(self._made[first:]):
            sock.close()
        del self._made[first:]


Call = Callable[[Any], Any]


def named(
    call: str, kind: str, values: list[Any], function: Callable[[Any, Any], Any]
) -> Iterator[tuple[str, str, Call]]:
    for at, value in enumerate(values):
        name = f"{kind}.{call} {at}: {value!r}"
        yield name, kind, lambda sock, value=value: function(sock, value)


def receiving() -> Iterator[tuple[str, str, Call]]:
    for kind in ("waiting", "idle"):
        for call in ("recv", "recvfrom", "recvmsg"):
            yield from named(call, kind, SIZES, lambda s, n, call=call: getattr(s, call)(n))
    for kind in ("waiting", "idle", "closed", "new", "listener"):
        for call in ("recv_into", "recvfrom_into"):
            yield from named(call, kind, BUFFERS, lambda s, made, call=call: filled(getattr(s, call), made()))
        yield from named("recvmsg_into", kind, BUFFERS, lambda s, made: s.recvmsg_into([made()]))
        for call in ("recv", "recvfrom", "recvmsg"):
            yield from named(call, kind, [0, 5], lambda s, n, call=call: getattr(s, call)(n))
    for call in ("recv_into", "recvfrom_into"):
        yield from named(
            f"{call} nbytes", "waiting", NUMBERS, lambda s, n, call=call: getattr(s, call)(bytearray(10), n)
        )
    flags = [one for one in NUMBERS if one not in (-1, *LARGE)]
    for call in ("recv", "recvfrom"):
        yield from named(f"{call} flags", "waiting", flags, lambda s, n, call=call: getattr(s, call)(10, n))
    yield from named("recvmsg control", "waiting", SIZES, lambda s, n: s.recvmsg(10, n))
    yield from named("recvmsg flags", "waiting", flags, lambda s, n: s.recvmsg(10, 0, n))


def filled(call: Call, buffer: Any) -> tuple[int, bytes]:
    return call(buffer), bytes(buffer)


def sending() -> Iterator[tuple[str, str, Call]]:
    for kind in ("idle", "new", "closed", "listener"):
        for call in ("send", "sendall"):
            yield from named(call, kind, BUFFERS, lambda s, made, call=call: getattr(s, call)(made()))
    yield from named("sendmsg", "idle", BUFFERS, lambda s, made: s.sendmsg([made()]))
    yield from named("sendto", "udp", BUFFERS, lambda s, made: s.sendto(made(), PEER))
    flags = [one for one in NUMBERS if one in (0, None) or not isinstance(one, int)]
    flags = [one for one in flags if not (isinstance(one, Index) and one.value)]  # MSG_OOB: the kernel's own
    for call in ("send", "sendall"):
        yield from named(f"{call} flags", "idle", flags, lambda s, n, call=call: getattr(s, call)(b"x", n))
    yield from named("sendmsg flags", "idle", flags, lambda s, n: s.sendmsg([b"x"], (), n))
    yield from named("sendto flags", "udp", flags, lambda s, n: s.sendto(b"x", n, PEER))
    control = [None, 1, [1], [()], [(1, 2)], [(1, 2, 3)], [("a", 1, b"")], [(1.0, 1, b"")], [(2**40, 1, b"")], "ab"]
    yield from named("sendmsg control", "idle", control, lambda s, items: s.sendmsg([b"x"], items))
    many = [(), None, 3, "ab", b"ab", [b"", b""], [b"x"] * 1025, [None]]
    yield from named("sendmsg of", "idle", many, lambda s, buffers: s.sendmsg(buffers))


def addresses() -> Iterator[tuple[str, str, Call]]:
    for kind in ("new", "closed"):
        for call in ("connect", "connect_ex", "bind"):
            given = ADDRESSES if call != "bind" else [one for one in ADDRESSES if one not in (PEER, ("0x7f.1", 9))]
            yield from named(call, kind, given, lambda s, address, call=call: getattr(s, call)(address))
    yield from named("connect_ex", "new6", ADDRESSES_6 + ADDRESSES, lambda s, address: s.connect_ex(address))
    for call in (lambda s, address: s.sendto(b"x", address), lambda s, address: s.sendmsg([b"x"], [], 0, address)):
        yield from named("to", "udp", ADDRESSES, call)


def options() -> Iterator[tuple[str, str, Call]]:
    yield from named("setsockopt", "new", NUMBERS, lambda s, n: (s.setsockopt(*REUSE, n), s.getsockopt(*REUSE)))
    yield from named("setsockopt of", "new", BUFFERS, lambda s, made: s.setsockopt(*REUSE, made()))
    yield from named("setsockopt level", "new", NUMBERS, lambda s, n: s.setsockopt(n, 2, 1))
    names = [one for one in NUMBERS if one not in (1, True)]  # SO_DEBUG needs privilege of the proxy
    yield from named("setsockopt option", "new", names, lambda s, n: s.setsockopt(socket.SOL_SOCKET, n, 1))
    lengths = [0, 5, Index(5), None, "1", 4.0, OnlyInt(), Faulty(), -1, 2**32 + 8]
    yield from named("setsockopt None", "new", lengths, lambda s, n: s.setsockopt(*REUSE, None, n))
    yield from named("setsockopt 4", "new", [1, b"1"], lambda s, value: s.setsockopt(*REUSE, value, 4))
    yield from named("getsockopt level", "new", NUMBERS, lambda s, n: s.getsockopt(n, 2))
    yield from named("getsockopt option", "new", names, lambda s, n: s.getsockopt(socket.SOL_SOCKET, n))
    yield from named("getsockopt length", "new", [*NUMBERS, 4, 8, 1024, 1025], lambda s, n: s.getsockopt(*TCP, n))


def state() -> Iterator[tuple[str, str, Call]]:
    yield from named(
        "settimeout", "new", NUMBERS + TIMEOUTS, lambda s, n: (s.settimeout(n), s.gettimeout(), s.getblocking())
    )
    more = [[], "", {}, OnlyFloat()]
    yield from named("setblocking", "new", NUMBERS + more, lambda s, n: (s.setblocking(n), s.gettimeout()))
    yield from named("listen", "new", NUMBERS, lambda s, n: s.listen(n))
    yield from named("shutdown", "idle", NUMBERS, lambda s, n: s.shutdown(n))
    makers = (lambda s, n: type(s)(n), lambda s, n: type(s)(2, n), lambda s, n: type(s)(2, 1, n))
    for position, make in enumerate(makers):
        given = [one for one in NUMBERS if position == 2 or one not in (1, True)]  # 1: AF_UNIX
        # 3 and 5: SOCK_SEQPACKET is ours, and SOCK_RAW needs privilege
        given = [one for one in given if one != 2**31 - 1 and not (position == 1 and as_int(one) in (3, 5))]
        yield from named(f"socket {position}", "new", given, lambda s, n, make=make: closing_one(make(s, n)))
    yield from named("socket of", "new", [-1, "a", 1.0, 9999, 2**70], lambda s, n: closing_one(type(s)(fileno=n)))
    for call in ("accept", "getsockname", "getpeername", "listen", "fileno", "detach", "close", "get_inheritable"):
        yield from named(call, "closed", [()], lambda s, _, call=call: getattr(s, call)())
    for call, given in (
        ("shutdown", (2,)),
        ("settimeout", (1,)),
        ("setblocking", (True,)),
        ("set_inheritable", (True,)),
    ):
        yield from named(call, "closed", [given], lambda s, given, call=call: getattr(s, call)(*given))
    yield from named("accept", "listener", [0, SHORT_S, 1e-12], lambda s, n: (s.settimeout(n), s.accept()))
    for call, keyword, value in POSITIONAL:
        yield from named(
            f"{call} {keyword}", "new", [value], lambda s, value, c=call, k=keyword: getattr(s, c)(**{k: value})
        )


def as_int(value: Any) -> int | None:
    return value.value if isinstance(value, Index) else value if isinstance(value, int) else None


def closing_one(sock: Any) -> tuple[int, int, int]:
    with sock:
        return int(sock.family), int(sock.type), sock.proto


GROUPS = {group.__name__: group for group in (receiving, sending, addresses, options, state)}


def outcome(bed: Bed, kind: str, call: Call) -> str:
    sock = getattr(bed, kind)()
    try:
        return f"returned {call(sock)!r}"
    except OSError as failure:
        return f"{type(failure).__name__} {failure.errno}"
    except Exception as failure:  # whatever it is, it has to be the same
        return type(failure).__name__
    finally:
        bed.clear()


def outcomes(module: ModuleType, group: str) -> dict[str, str]:
    with closing(Bed(module)) as bed:
        return {name: outcome(bed, kind, call) for name, kind, call in GROUPS[group]()}


@pytest.fixture(scope="module")
def standard() -> dict[str, dict[str, str]]:
    return {group: outcomes(socket, group) for group in GROUPS}


def without_objects(found: dict[str, str]) -> dict[str, str]:
    return {name.partition(" object at")[0]: text for name, text in found.items()}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("way", ["swapped", "installed"])
def test_the_same_outcome(
    way: str, group: str, standard: dict[str, dict[str, str]], rules: Callable[[str], Path]
) -> None:
    if way == "installed":
        with xts_socket.offload(rules(EVERYTHING)):
            found = outcomes(socket, group)
    else:
        found = outcomes(xts_socket, group)
    there = without_objects(standard[group])
    here = without_objects(found)
    assert here.keys() == there.keys() and len(here) > 60
    different = [f"{name}: {there[name]} there, {text} here" for name, text in here.items() if text != there[name]]
    assert not different, "\n".join(different)


def test_a_timeout_holds_although_the_socket_is_readable() -> None:
    """By what this call does not take: the error queue of a stream socket is always empty."""
    with closing(Bed(xts_socket)) as bed:
        sock = bed.waiting()
        sock.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            sock.recv(10, socket.MSG_ERRQUEUE)


AUDITED = """
import socket, sys
import xts_socket
from beds.proxy_process import ProxyProcess
module = xts_socket if sys.argv[1] == "swapped" else socket
events = []
def note(name, arguments):
    if on and name.startswith("socket."):
        events.append((name, arguments))
sys.addaudithook(note)
on = False
listener = module.create_server(("127.0.0.1", 0))
on = True
with module.socket() as sock, module.socket(type=socket.SOCK_DGRAM) as datagrams:
    sock.bind(("127.0.0.1", 0))
    sock.connect(listener.getsockname())
    listener.accept()[0].close()
    datagrams.sendto(b"x", ("127.0.0.1", 9))
    datagrams.sendmsg([b"x"], [], 0, ("127.0.0.1", 9))
    sock.sendmsg([b"x"])
on = False
for name, (who, *rest) in events:
    print(name, who is sock, who is datagrams, str(rest).replace(str(listener.getsockname()[1]), "PORT"))
"""


def test_the_same_audit_events(xts_endpoint: ProxyProcess) -> None:
    there, here = (
        subprocess.run(
            [sys.executable, "-c", AUDITED, way], check=True, capture_output=True, text=True, timeout=60
        ).stdout
        for way in ("standard", "swapped")
    )
    assert here == there
    assert {"socket.sendto", "socket.sendmsg", "socket.__new__"} <= set(here.split())
