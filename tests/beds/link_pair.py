"""Two links back to back over queues in memory, under a virtual clock, for tests of the link state machine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame

from beds.native_core import load

HOST, PROXY = 0, 1
MAC = (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
EPOCH = 0x1122334455667788
MS = 1_000_000

ffi, core = load()
OPENING, UP, DOWN = core.XTS_LINK_OPENING, core.XTS_LINK_UP, core.XTS_LINK_DOWN
DELIVER, CONSUMED, OPENED = core.XTS_LINK_DELIVER, core.XTS_LINK_CONSUMED, core.XTS_LINK_OPENED
CLOSED, DROPPED = core.XTS_LINK_CLOSED, core.XTS_LINK_DROPPED
NEVER = 0xFFFFFFFFFFFFFFFF


def kind(frame: bytes) -> str:
    """The message name of a frame."""
    return codec.BY_CODE[frame[table.ETH_BYTES]].name


def is_sequenced(frame: bytes) -> bool:
    return frame[table.ETH_BYTES] not in table.LINK_CODES


def config(role: int, **changes: Any) -> Any:
    """A link's configuration; `changes` are fields of struct xts_link_config."""
    values: dict[str, Any] = {
        "role": role,
        "local_mac": MAC[role],
        "peer_mac": MAC[1 - role],
        "frame_window": 16,
        "largest_message": table.FRAME_BYTES_MAX,
        "epoch": EPOCH if role == HOST else 0,
        "pid": 1 + role,
        "sockets_max": 100 if role == PROXY else 0,
        "ping_ms": 100,
        "dead_ms": 1000,
    }
    made = ffi.new("struct xts_link_config *")
    for name, value in (values | changes).items():
        setattr(made, name, value)
    return made


@dataclass
class End:
    """One link and what a test knows about it. Messages are numbered by their id, so that order can be checked."""

    role: int
    link: Any
    outbox: deque[bytes]
    inbox: deque[bytes]
    sent: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    held: int = 0  # delivered in this epoch and not recycled
    verdicts: list[int] = field(default_factory=list)

    @property
    def up(self) -> bool:
        return bool(self.link.state == UP)

    @property
    def error(self) -> int:
        return int(self.link.error)

    @property
    def credits(self) -> int:
        return int(core.xts_link_credits(self.link))

    def send(self, number: int) -> bool:
        """Sends message `number`; false when there is no frame credit."""
        if not self.credits:
            return False
        name = "XTS_CMD_SEND" if self.role == HOST else "XTS_REPLY_RECV"
        frame = bytearray(codec.encode(codec.Frame(name, payload=number.to_bytes(4, "big"), id=number)))
        core.xts_link_seal(self.link, ffi.from_buffer(frame))
        self.outbox.append(bytes(frame))
        self.sent.append(number)
        return True

    def receive(self, now_ns: int) -> int:
        """Takes the next frame of the inbox; returns the verdict."""
        return self.take(self.inbox.popleft(), now_ns)

    def take(self, frame: bytes, now_ns: int) -> int:
        """Gives the link a frame, as the owner of a channel would."""
        head = ffi.new("struct xts_head *")
        memory = ffi.new("uint8_t[]", frame[:128]) if frame else ffi.new("uint8_t[1]")
        verdict = int(core.xts_link_receive(self.link, memory, min(len(frame), 128), len(frame), now_ns, head))
        if verdict == DELIVER:
            self.delivered.append(int(head.id))
            self.held += 1
        elif verdict in (OPENED, CLOSED):
            self.held = 0
        self.verdicts.append(verdict)
        return verdict

    def recycle(self, frames: int = 1) -> None:
        for _ in range(min(frames, self.held)):
            self.held -= 1
            core.xts_link_recycled(self.link)

    def pump(self, now_ns: int) -> list[bytes]:
        """Sends all control frames that are due; returns them."""
        memory = ffi.new("uint8_t[128]")
        written = []
        while length := core.xts_link_control(self.link, memory, now_ns):
            written.append(bytes(ffi.buffer(memory, length)))
            assert len(written) <= 8, "control frames without end"
        assert not core.xts_link_control_due(self.link)
        self.outbox.extend(written)
        return written

    def tick(self, now_ns: int) -> int:
        verdict = int(core.xts_link_tick(self.link, now_ns))
        self.verdicts.append(verdict)
        if verdict == CLOSED:
            self.held = 0
        return verdict


class Pair:
    """A host's and a proxy's link, joined."""

    def __init__(self, host: Any = None, proxy: Any = None, now_ns: int = 5 * MS) -> None:
        self.now_ns = now_ns
        to_proxy: deque[bytes] = deque()
        to_host: deque[bytes] = deque()
        links = [ffi.new("struct xts_link *") for _ in (HOST, PROXY)]
        for link, made in zip(links, (host or config(HOST), proxy or config(PROXY)), strict=True):
            assert core.xts_link_init(link, made, self.now_ns) == 0
        self.host = End(HOST, links[HOST], to_proxy, to_host)
        self.proxy = End(PROXY, links[PROXY], to_host, to_proxy)
        self.ends = (self.host, self.proxy)

    def advance(self, ms: int) -> None:
        """Lets time pass and ticks both ends."""
        self.now_ns += ms * MS
        for end in self.ends:
            end.tick(self.now_ns)

    def settle(self) -> None:
        """Moves frames until nothing moves any more; nothing is recycled."""
        for _ in range(10_000):
            moved = False
            for end in self.ends:
                moved |= bool(end.pump(self.now_ns))
                if end.inbox:
                    end.receive(self.now_ns)
                    moved = True
            if not moved:
                return
        raise AssertionError("the links never come to rest")

    def reattach(self, made: Any) -> None:
        """Another process takes the host's side of the same queue."""
        assert core.xts_link_init(self.host.link, made, self.now_ns) == 0
        self.host.held = 0
        self.host.sent, self.host.delivered = [], []

    def open(self) -> Pair:
        self.settle()
        assert self.host.up
        assert self.proxy.up
        return self


# --- frames by hand -------------------------------------------------------------------------------


def from_host(name: str, fields: dict[str, Any] | None = None, **changes: Any) -> bytes:
    return codec.encode(Frame(name, fields or {}, destination=MAC[PROXY], source=MAC[HOST], **changes))


def from_proxy(name: str, fields: dict[str, Any] | None = None, **changes: Any) -> bytes:
    return codec.encode(Frame(name, fields or {}, destination=MAC[HOST], source=MAC[PROXY], **changes))


def hello(**changes: Any) -> bytes:
    fields = {
        "version": table.VERSION,
        "frame_window": 16,
        "largest_message": table.FRAME_BYTES_MAX,
        "epoch": EPOCH,
    }
    return from_host("XTS_LINK_HELLO", fields | changes)


def hello_ack(error: int = 0, **changes: Any) -> bytes:
    fields = {
        "version": table.VERSION,
        "frame_window": 16,
        "largest_message": table.FRAME_BYTES_MAX,
        "epoch": EPOCH,
    }
    return from_proxy("XTS_LINK_HELLO_ACK", fields | changes, error=error)
