"""Random calls on datagram sockets: `python random_datagrams.py SEED SCRIPTS [TRACES]` prints what each call came to,
and what can be seen of all sockets after it, as JSON. TRACES is what another run has printed: a state that is not that
run's yet is waited for, as what is sent takes its time.

Three sockets are bound, one is not, and one port has nobody. A socket that has something unread is sent more by the
same sender only: the order of several is nobody's to promise.
"""

from __future__ import annotations

import errno
import json
import random
import select
import socket
import sys
import termios
import time
from array import array
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from typing import Any

from system.interposer.programs.interposed import libc

SETTLE_S = 10.0
CALLS = 25
SIZES = (0, 1, 7, 100, 1400, 3000, 65507, 65508)
LARGE = 10_000  # goes to a socket that has nothing: what is dropped for want of room is not compared
ROOM = (0, 1, 10, 2000, 70000)
FLAGS = (0, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_PEEK | socket.MSG_TRUNC)
NOBODY = ("127.0.0.1", 9)  # no port that the kernel picks: it may pick one that was free before
EVENTS = select.POLLIN | select.POLLOUT | select.POLLERR | select.POLLHUP | select.POLLRDHUP
Trace = list[list[Any]]


class World:
    """The sockets of one script. Sockets are known by their index, ports by the index of who has them."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.sockets = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(4)]
        for s in self.sockets:
            s.setblocking(False)
        for s in self.sockets[:3]:
            s.bind(("127.0.0.1", 0))
        self.addresses = [*(s.getsockname() for s in self.sockets[:3]), NOBODY]
        self.senders: dict[int, int] = {}  # the last one, of what a socket has
        self.peers: dict[int, int] = {}
        self.given_back: set[int] = set()  # ports of these, which the kernel may give to anybody, now or later
        self.with_port = {0, 1, 2}

    def named(self, address: Any) -> Any:
        if address in self.addresses and self.addresses.index(address) not in self.given_back:
            return self.addresses.index(address)
        return [address[0], "a port" if address[1] else 0] if isinstance(address, tuple) else address

    def state(self) -> list[Any]:
        poller = select.poll()
        for s in self.sockets:
            poller.register(s, EVENTS)
        ready = dict(poller.poll(0))
        return [[ready.get(s.fileno(), 0), self.first_bytes(s)] for s in self.sockets]

    def first_bytes(self, s: socket.socket) -> int:
        number = array("i", [0])
        ioctl(s, termios.FIONREAD, number)
        return number[0]

    def may_send(self, sender: int, to: int, size: int) -> bool:
        if to in self.given_back:
            return False
        if to >= 3:
            return True
        busy = self.state()[to][0] & select.POLLIN
        if busy and (self.senders.get(to) != sender or size > LARGE):
            return False
        self.senders[to] = sender
        return True

    def others_have_sent(self, at: int) -> None:
        """What others have sent has gone out: it takes its time, and would meet a socket with another peer or port. An
        option is answered after what was sent before."""
        for number, s in enumerate(self.sockets):
            if number != at:
                s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64)

    # --- the calls: what each came to -------------------------------------------------------------------------

    def sendto(self, at: int) -> Any:
        to, size = self.chosen.randrange(4), self.chosen.choice(SIZES)
        if at not in self.with_port and size > SIZES[-2]:
            return "not sent"  # the kernel gives it a port even where the call fails
        if not self.may_send(at, to, size):
            return "not sent"
        sent = self.sockets[at].sendto(self.chosen.randbytes(size), self.addresses[to])
        self.with_port.add(at)
        return sent

    def send(self, at: int) -> Any:
        size = self.chosen.choice(SIZES)
        if at not in self.with_port:
            return "not sent"  # likewise
        if not self.may_send(at, self.peers.get(at, 3), size):
            return "not sent"
        return self.sockets[at].send(self.chosen.randbytes(size))

    def recvfrom(self, at: int) -> Any:
        room, flags = self.chosen.choice(ROOM), self.chosen.choice(FLAGS)
        data, source = self.sockets[at].recvfrom(room, flags & ~socket.MSG_TRUNC)
        return [len(data), hash_of(data), self.named(source)]

    def recvmsg(self, at: int) -> Any:
        room, flags = self.chosen.choice(ROOM), self.chosen.choice(FLAGS)
        data, control, got, source = self.sockets[at].recvmsg(room, 0, flags & ~socket.MSG_TRUNC)
        return [len(data), hash_of(data), control, got, self.named(source)]

    def connect(self, at: int) -> Any:
        to = self.chosen.randrange(4)
        if to in self.given_back:
            return "not connected"
        self.others_have_sent(at)
        self.sockets[at].connect(self.addresses[to])
        self.peers[at] = to
        self.with_port.add(at)
        return None

    def disconnect(self, at: int) -> Any:
        self.others_have_sent(at)
        self.peers.pop(at, None)
        self.with_port.discard(at)
        self.given_back.add(at)
        return libc("connect", self.sockets[at].fileno(), bytes(16), 16)

    def names(self, at: int) -> Any:
        s = self.sockets[at]
        return [self.named(s.getsockname()), outcome(lambda: self.named(s.getpeername()))]

    def error(self, at: int) -> Any:
        return self.sockets[at].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def shutdown(self, at: int) -> Any:
        how, rarely = self.chosen.randrange(2), self.chosen.random() < 0.2
        if not rarely:
            return "not shut down"
        return self.sockets[at].shutdown(how)

    def bind(self, at: int) -> Any:
        if at == 3:
            return None
        self.sockets[at].bind(("127.0.0.1", 0))
        self.with_port.add(at)
        return None


MIX: list[Callable[[World, int], Any]] = [
    *[World.sendto] * 6,
    *[World.send] * 4,
    *[World.recvfrom] * 4,
    *[World.recvmsg] * 3,
    *[World.connect] * 2,
    *[World.disconnect, World.names, World.error, World.shutdown, World.bind],
]


def hash_of(data: bytes) -> int:
    return sum(byte * (at + 1) for at, byte in enumerate(data)) % 65521


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OSError as failure:
        return errno.errorcode[failure.errno or 0]


def settled(world: World, expected: list[Any] | None) -> list[Any]:
    end = time.monotonic() + SETTLE_S
    while (state := world.state()) != expected and expected is not None and time.monotonic() < end:
        time.sleep(0.0005)
    return state


def run(number: int, expected: Trace | None) -> Trace:
    chosen = random.Random(number)
    world = World(chosen)
    trace: Trace = []
    for step in range(CALLS):
        call, at = chosen.choice(MIX), chosen.randrange(4)
        known = expected[step] if expected is not None and step < len(expected) else None
        came_to = outcome(lambda call=call, at=at: call(world, at))  # type: ignore[misc]
        trace.append([call.__name__, at, came_to, settled(world, known[3] if known else None)])
        if expected is not None and json.loads(json.dumps(trace[-1])) != known:
            break
    for s in world.sockets:
        s.close()
    return trace


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    others = json.loads(Path(sys.argv[3]).read_text()) if len(sys.argv) > 3 else [None] * count
    print(json.dumps([run(first + number, others[number]) for number in range(count)]))
