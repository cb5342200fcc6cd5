"""Programs with datagram sockets for the interposer: `python datagram_scripts.py NAME`. Their peers are offloaded, too,
where the rules say so."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import sys
import threading
from pathlib import Path

from beds.classic_bpf import SO_ATTACH_FILTER, SO_DETACH_FILTER, Program, begins_with, of_length
from beds.libc_structs import Header, Message, Vector
from beds.scripts import apart, script, scripts
from beds.stack_modes import put_elsewhere
from system.interposer.programs.interposed import (
    DEADLINE_S,
    OFFLOADED,
    PROTOCOL,
    RULE,
    STAYED,
    UNDECIDED,
    errno_of,
    kind_of,
    libc,
    reason_of,
    wait_for_child,
)
from xts_lab.free_ports import free_port

MSG_WAITFORONE = 0x10000


def _made() -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(DEADLINE_S)
    return s


def _bound() -> socket.socket:
    s = _made()
    s.bind(("127.0.0.1", 0))
    return s


def _is_udp_of_the_kernel(fd: int) -> bool:
    inode = str(Path(f"/proc/self/fd/{fd}").readlink()).removeprefix("socket:[").removesuffix("]")
    return any(line.split()[9] == inode for line in Path("/proc/net/udp").read_text().splitlines()[1:])


@script("datagrams")
def what_the_device_cannot_send() -> None:
    """On the kernel the call that sends fails itself. So here it is no readiness, no error of the socket and none of a
    call that receives: only of the next one that sends, once."""
    s, peer = _bound(), _bound()
    s.sendto(b"x", peer.getsockname())
    s.sendto(b"of a network that has broadcast", ("127.255.255.255", 9))  # EACCES, which only the device knows
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)  # a round trip
    poll = select.poll()
    poll.register(s, select.POLLIN)
    epoll = select.epoll()
    epoll.register(s, select.EPOLLIN | select.EPOLLET)
    assert not poll.poll(50) and not epoll.poll(0)
    s.setblocking(False)
    assert errno_of(lambda: s.recv(1)) == errno.EAGAIN
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert errno_of(lambda: s.sendto(b"y", peer.getsockname())) == errno.EACCES
    s.sendto(b"z", peer.getsockname())
    assert (peer.recv(9), peer.recv(9)) == (b"x", b"z")
    connected = _made()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    connected.connect(peer.getsockname())
    peer.close()
    connected.send(b"refused")
    poll.register(connected, 0)
    assert poll.poll(5000) == [(connected.fileno(), select.POLLERR)]  # what ICMP says is, with a peer
    assert errno_of(lambda: connected.recv(1)) == errno.ECONNREFUSED


@script("datagrams")
def splice_takes_one_at_a_time() -> None:
    """Whole if the pipe has room, and an empty one, too."""
    one, two = _made(), _bound()
    one.connect(two.getsockname())
    assert kind_of(two.fileno()) == OFFLOADED
    read_end, write_end = os.pipe()
    sizes = (3, 6, 0, 20_000, 5)
    for size in sizes:
        one.send(b"x" * size)
    two.settimeout(None)
    for size in sizes:
        most = 2 if size == 6 else size
        room = ctypes.c_size_t(2 if size == 6 else 65536)
        assert libc("splice", two.fileno(), None, write_end, None, room, 0) == most
        assert not size or len(os.read(read_end, 65536)) == most
    two.setblocking(False)
    call = ("splice", two.fileno(), None, write_end, None, ctypes.c_size_t(100), 0)
    assert errno_of(lambda: libc(*call)) == errno.EAGAIN


@script("datagrams")
def filter_before_the_decision() -> None:
    """It is kept as a program: the program's memory may be gone when the socket moves to the device."""
    receiver, sender, free, large = _made(), _made(), _made(), _made()
    program = Program(begins_with(b"a"))
    receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program.raw)
    free.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program.raw)
    free.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    ctypes.memset(program.code, 0xFF, len(program.code))
    long = Program(of_length(62))
    large.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, long.raw)
    for s in (receiver, free):
        s.bind(("127.0.0.1", 0))
    assert kind_of(receiver) == kind_of(free) == OFFLOADED
    assert (
        errno_of(lambda: large.bind(("127.0.0.1", 0))) == errno.EOPNOTSUPP
    )  # reason OPTION; these programs run `strict`
    for s in (receiver, free):
        for word in (b"bird", b"ant"):
            sender.sendto(word, s.getsockname())
    assert receiver.recv(10) == b"ant"
    assert [free.recv(10) for _ in range(2)] == [b"bird", b"ant"]


@script("datagrams")
def each_call_decides() -> None:
    receiver, sender, client = _bound(), _made(), _made()
    assert kind_of(receiver) == OFFLOADED
    assert kind_of(sender) == kind_of(client) == UNDECIDED
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
    copy = sender.dup()
    sender.sendto(b"sent", receiver.getsockname())
    assert kind_of(sender) == kind_of(copy) == OFFLOADED
    data, source = receiver.recvfrom(100)
    assert data == b"sent" and source == ("127.0.0.1", sender.getsockname()[1])
    assert sender.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 200_000
    client.connect(receiver.getsockname())
    assert kind_of(client) == OFFLOADED
    assert os.write(client.fileno(), b"written") == 7
    assert receiver.recv(100) == b"written"
    for s in (receiver, sender, copy, client):
        assert not _is_udp_of_the_kernel(s.fileno())


@script("datagrams")
def bound_to_no_port_it_is_a_client() -> None:
    """As resolvers do."""
    receiver, client = _bound(), _made()
    client.bind(("0.0.0.0", 0))
    assert kind_of(client) == OFFLOADED
    client.connect(receiver.getsockname())
    client.send(b"x")
    assert receiver.recv(10) == b"x"


@script("datagrams in part")
def rules_decide() -> None:
    """Receivers are the kernel's; who connects is not, and who sends to 127.0.0.2 is not."""
    receiver, client, sender, other, unsaid = (_made() for _ in range(5))
    receiver.bind(("127.0.0.1", free_port()))
    assert (kind_of(receiver), reason_of(receiver)) == (STAYED, RULE)
    unsaid.bind(("127.0.0.1", 0))
    assert kind_of(unsaid) == UNDECIDED
    receiver.sendto(b"question", unsaid.getsockname())
    assert unsaid.recvfrom(10)[0] == b"question"
    assert (kind_of(unsaid), reason_of(unsaid)) == (STAYED, RULE)  # its port is known to others
    client.bind(("0.0.0.0", 0))
    assert kind_of(client) == UNDECIDED  # it may become a client yet
    client.connect(receiver.getsockname())
    assert kind_of(client) == OFFLOADED
    client.send(b"over the device")
    data, source = receiver.recvfrom(100)
    assert data == b"over the device" and source == client.getsockname()
    receiver.sendto(b"back", source)
    assert client.recv(100) == b"back"
    sender.sendto(b"x", ("127.0.0.2", 9))
    assert kind_of(sender) == OFFLOADED
    other.sendto(b"y", receiver.getsockname())
    assert (kind_of(other), reason_of(other)) == (STAYED, RULE)
    assert receiver.recv(100) == b"y"


@script("datagrams by default")
def without_rules_they_are_the_kernels() -> None:
    s = _made()
    assert (kind_of(s), reason_of(s)) == (STAYED, PROTOCOL)
    s.bind(("127.0.0.1", 0))
    s.sendto(b"x", s.getsockname())
    assert s.recv(10) == b"x"


@script("datagrams")
def many_messages_in_a_call() -> None:
    receiver, sender = _bound(), _made()
    texts = [ctypes.create_string_buffer(f"number {i}".encode()) for i in range(20)]
    vectors = [Vector(ctypes.addressof(text), len(text.value)) for text in texts]
    sender.connect(receiver.getsockname())
    messages = (Message * 20)(*(Message(Header(vectors=ctypes.pointer(v), count=1)) for v in vectors))
    assert libc("sendmmsg", sender.fileno(), messages, 20, 0) == 20
    rooms = [ctypes.create_string_buffer(100) for _ in range(30)]
    vectors = [Vector(ctypes.addressof(room), 100) for room in rooms]
    received = (Message * 30)(*(Message(Header(vectors=ctypes.pointer(v), count=1)) for v in vectors))
    receiver.settimeout(None)
    got = 0
    while got < 20:
        got += libc("recvmmsg", receiver.fileno(), ctypes.byref(received, got * ctypes.sizeof(Message)), 30 - got,
                    MSG_WAITFORONE, None)  # fmt: skip
    assert [room.value for room in rooms[:20]] == [text.value for text in texts]
    assert [message.bytes for message in received[:20]] == [len(text.value) for text in texts]


@script("datagrams")
def all_ways_of_waiting() -> None:
    receiver, sender = _bound(), _made()
    stream = socket.create_server(("127.0.0.1", 0))  # the kernel's
    poller, waiter = select.poll(), put_elsewhere(select.epoll())
    late = _made()
    waiter.register(late, select.EPOLLIN)  # while it is undecided
    for s in (receiver, stream):
        poller.register(s, select.POLLIN)
        waiter.register(s, select.EPOLLIN)
    assert not select.select([receiver, stream], [], [], 0)[0]
    for _ in range(3):
        threading.Timer(0.02, sender.sendto, (b"x", receiver.getsockname())).start()
        assert select.select([receiver, stream], [], [], DEADLINE_S)[0] == [receiver]
        assert poller.poll(DEADLINE_S * 1000) == [(receiver.fileno(), select.POLLIN)]
        assert waiter.poll(DEADLINE_S) == [(receiver.fileno(), select.EPOLLIN)]
        assert receiver.recv(10) == b"x"
    late.bind(("127.0.0.1", 0))
    assert kind_of(late) == OFFLOADED
    sender.sendto(b"late", late.getsockname())
    assert waiter.poll(DEADLINE_S) == [(late.fileno(), select.EPOLLIN)]
    assert os.read(late.fileno(), 10) == b"late"


@script("datagrams")
def a_forked_child_has_them_too() -> None:
    receiver, sender = _bound(), _made()
    sender.connect(receiver.getsockname())
    pid = os.fork()
    if not pid:
        assert sender.send(b"the child's") == 11
        fresh = _bound()
        own = _made()
        own.sendto(b"of its own", fresh.getsockname())
        assert fresh.recv(100) == b"of its own"
        os._exit(0)
    assert receiver.recv(100) == b"the child's"
    wait_for_child(pid)
    pid = os.fork()
    if not pid:
        assert receiver.recv(100) == b"the parent's"
        os._exit(0)
    sender.send(b"the parent's")
    wait_for_child(pid)


def main() -> None:
    name = apart(sys.argv[1])
    {**scripts("datagrams"), **scripts("datagrams in part"), **scripts("datagrams by default")}[name]()


if __name__ == "__main__":
    main()
