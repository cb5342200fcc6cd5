"""libxts and a worker of the proxy in one process, joined by queues in memory, with a clock that the test sets.

Theory of operation

Both ends are the product's own C. What is replaced is in native/: of libxts attaching, the progress thread, the
clock and the sleep (pair_host.c); of the worker its thread and its clock (pair_worker.c). Nothing happens unless
the test makes it: `step()` carries frames over, makes a round of the worker and does what the progress thread
would; `run()` repeats it until nothing moves; `advance()` lets time pass, in steps from one deadline of either end
to the next. A call that would sleep in libxts does the same until it is woken or its time is over, so timeouts of
hours take no time, and one run is as the other.

What passes between the ends can be held up (`to_worker`, `to_host`): frames are then kept, in order, until they are
let go or dropped.

TCP is the kernel's on the loopback device, so peers are ordinary sockets. Its own timers (a delayed ACK) know
nothing of the test's clock: what waits for them cannot be tested here.
"""

from __future__ import annotations

import errno
import socket as _socket
from collections import deque
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cffi import FFI

#: Where deploy/setup --dev builds.
BUILD = Path(__file__).resolve().parents[2] / "build" / "editable"

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
NEVER = (1 << 64) - 1
FRAME_BYTES = 1 << 16
_BEGIN_NS = 1000 * NS_PER_S
_STEPS_MAX = 100_000  # in one run(): it moves for ever

HOST_CDEF = """
struct pair_calls {
    void (*idle)(uint64_t until_ns);
    void (*attached)(void);
    void (*detached)(void);
};
void pair_host_start(const struct pair_calls *given, uint64_t now_ns);
void pair_host_time(uint64_t now_ns);
uint64_t pair_host_tick(void);
uint32_t pair_host_take(void *frame);
void pair_host_put(const void *frame, uint32_t bytes);
void pair_host_end(void);
uint32_t pair_host_sockets(void);
int xts_socket(int domain, int type, int protocol);
int xts_close(int s);
int xts_bind(int s, const void *address, unsigned length);
int xts_connect(int s, const void *address, unsigned length);
int xts_listen(int s, int backlog);
int xts_accept4(int s, void *address, unsigned *length, int flags);
ssize_t xts_send(int s, const void *data, size_t bytes, int flags);
ssize_t xts_recv(int s, void *data, size_t bytes, int flags);
int xts_shutdown(int s, int how);
int xts_setsockopt(int s, int level, int option, const void *value, unsigned length);
int xts_getsockopt(int s, int level, int option, void *value, unsigned *length);
int xts_getsockname(int s, void *address, unsigned *length);
struct pollfd { int fd; short events, revents; };
int xts_poll(struct pollfd *fds, unsigned long count, int timeout_ms);
struct xts_options {
    size_t size;
    const char *endpoint;
    uint32_t spin_us;
    uint32_t window_bytes;
    uint32_t window_bytes_max;
    uint32_t frame_window;
    const char *pcap;
    uint32_t dead_ms;
    const char *stacks;
};
int xts_configure(const struct xts_options *options);
"""

WORKER_CDEF = """
void pair_worker_start(uint64_t now_ns);
void pair_worker_attach(void);
void pair_worker_detach(void);
void pair_worker_time(uint64_t now_ns);
bool pair_worker_round(void);
int pair_worker_sleeps_ms(void);
uint32_t pair_worker_take(void *frame);
void pair_worker_put(const void *frame, uint32_t bytes);
uint32_t pair_worker_connections(void);
void pair_worker_stop(void);
"""


@lru_cache
def load() -> tuple[Any, Any, Any, Any]:
    """(ffi and library of libxts, ffi and library of the worker)."""
    out: list[Any] = []
    for name, text in (("pair_host", HOST_CDEF), ("pair_worker", WORKER_CDEF)):
        path = BUILD / f"{name}.so"
        assert path.exists(), f"{path} is missing: deploy/setup --dev builds it"
        ffi = FFI()
        ffi.cdef(text)
        out += [ffi, ffi.dlopen(str(path))]
    return out[0], out[1], out[2], out[3]


class Wire:
    """Frames on their way to one end. `held`: they are kept; `drop()` loses those that are."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.held = False

    def drop(self) -> None:
        self.frames.clear()


class Pair:
    """One at a time in a process. `now_s` is the time of both ends, from 0 on."""

    def __init__(self, **settings: int) -> None:
        """`settings` are those of xts_configure(): dead_ms, window_bytes, frame_window …"""
        self._ffi, self.host, self._worker_ffi, self._worker = load()
        self._now_ns = _BEGIN_NS
        self.to_worker, self.to_host = Wire(), Wire()
        self._frame = self._ffi.new("char[]", FRAME_BYTES)
        self._never_ns = NEVER
        ffi = self._ffi
        self._kept = (
            ffi.callback("void(uint64_t)", self._idle),
            ffi.callback("void(void)", self._attached),
            ffi.callback("void(void)", self._worker.pair_worker_detach),
        )
        self.host.pair_host_start(ffi.new("struct pair_calls *", self._kept), self._now_ns)
        options = ffi.new("struct xts_options *", {"size": ffi.sizeof("struct xts_options"), "spin_us": 0xFFFFFFFF})
        for name, value in settings.items():
            setattr(options, name, value)
        self.check(self.host.xts_configure(options))
        self._worker.pair_worker_start(self._now_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.host.pair_host_end()
        self._worker.pair_worker_stop()

    # --- time -----------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return (self._now_ns - _BEGIN_NS) / NS_PER_S

    def step(self) -> bool:
        """Carries what is on its way one step on. True: anything has moved."""
        moved = self._carry(self.host.pair_host_take, self.to_worker, self._worker.pair_worker_put)
        moved |= self._worker.pair_worker_round()
        moved |= self._carry(self._worker.pair_worker_take, self.to_host, self.host.pair_host_put)
        return moved

    def run(self) -> None:
        """Until nothing moves, at this time."""
        for _ in range(_STEPS_MAX):
            moved = self.step()
            self._never_ns = self.host.pair_host_tick()
            if not moved and not self.step():
                return
        raise AssertionError("it moves for ever")

    def advance(self, seconds: float) -> None:
        """Lets this time pass."""
        end_ns = self._now_ns + round(seconds * NS_PER_S)
        self.run()
        while self._now_ns < end_ns:
            self._pass(end_ns)
            self.run()

    def _pass(self, until_ns: int) -> None:
        """Nothing moves: time does, to the next deadline of either end, at most until then."""
        sleeps_ms = self._worker.pair_worker_sleeps_ms()
        worker_ns = NEVER if sleeps_ms < 0 else self._now_ns + max(sleeps_ms, 1) * NS_PER_MS
        next_ns = min(until_ns, worker_ns, max(self._never_ns, self._now_ns + 1))
        assert next_ns < NEVER, "both ends wait for ever"
        self._now_ns = next_ns
        self.host.pair_host_time(next_ns)
        self._worker.pair_worker_time(next_ns)

    def _idle(self, until_ns: int) -> None:
        """libxts sleeps."""
        if not self.step():
            self._never_ns = until_ns
            self._pass(until_ns)

    def _carry(self, take: Any, wire: Wire, put: Any) -> bool:
        moved = False
        while size := take(self._frame):
            wire.frames.append(bytes(self._ffi.buffer(self._frame, size)))
        while wire.frames and not wire.held:
            frame = wire.frames.popleft()
            put(frame, len(frame))
            moved = True
        return moved

    def _attached(self) -> None:
        self.to_worker.drop()
        self.to_host.drop()
        self._worker.pair_worker_attach()

    # --- calls ----------------------------------------------------------------------------------------------

    def check(self, result: int) -> int:
        """OSError of errno for -1."""
        if result < 0:
            code = self._ffi.errno
            raise OSError(code, errno.errorcode.get(code, str(code)))
        return result

    def socket(self, flags: int = 0) -> int:
        return self.check(self.host.xts_socket(_socket.AF_INET, _socket.SOCK_STREAM | flags, 0))

    def connect(self, s: int, port: int) -> None:
        address = self._ffi.from_buffer(address_of(port))
        self.check(self.host.xts_connect(s, address, 16))

    def send(self, s: int, data: bytes, flags: int = _socket.MSG_NOSIGNAL) -> int:
        return self.check(self.host.xts_send(s, data, len(data), flags))

    def recv(self, s: int, size: int, flags: int = 0) -> bytes:
        room = self._ffi.new("char[]", size)
        return bytes(self._ffi.buffer(room, self.check(self.host.xts_recv(s, room, size, flags))))

    def set(self, s: int, level: int, option: int, value: bytes) -> None:
        self.check(self.host.xts_setsockopt(s, level, option, value, len(value)))

    def close(self, s: int) -> None:
        self.check(self.host.xts_close(s))

    @property
    def connections(self) -> int:
        """That the worker has."""
        return int(self._worker.pair_worker_connections())


def address_of(port: int) -> bytes:
    """A struct sockaddr_in of the loopback device."""
    return _socket.AF_INET.to_bytes(2, "little") + port.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
