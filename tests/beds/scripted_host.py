"""A host made by hand, for tests of the proxy's worker: it speaks the link properly and says whatever a test wants.

The worker runs in this process, over a shared-memory queue; its TCP peers are ordinary sockets on loopback.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Self

from xts_messages._native import ffi, lib
from xts_messages.queues import queue
from xts_messages.queues.queue import Faults
from xts_messages.queues.shm import open_shm_pair
from xts_messages.wire import codec, ulp_attributes, ulps
from xts_messages.wire import wire_table as table
from xts_proxy._native import ffi as worker_ffi
from xts_proxy._native import lib as worker_lib
from xts_proxy.tenants.tenants import POOLS, RESOURCES

from beds.patience import SLOWER

WINDOW = 64 * 1024
NEVER_MS = int(5000 * SLOWER)


def now_ns() -> int:
    return time.monotonic_ns()


#: Peers are on loopback here, which has to be allowed by name (struct xts_policy_rule).
LOOPBACK = {
    "allow": True,
    "action": 3,
    "own": True,
    "port_last": 0xFFFF,
    "queue_last": 0xFFFFFFFF,
    "tenant": 0xFFFFFFFF,
}

#: An interface that groups can be joined on; the second address is made up.
LO = {
    "index": 1,
    "text": b"1 lo multicast 127.0.0.1\n",
    "stamps": b"1 -1 26 0 0 0 0\n",
    "ipv4": [b"\x7f\0\0\1", b"\x0a\x4d\x63\1"],
}

#: What a tenant may use by default here, in addition to windows.
LIMITS = {
    "connections": 1000,
    "listeners": 100,
    "spill_bytes": 1 << 28,
    "ulp_bytes": 1 << 28,
}


def make_tenant(
    name: str = "default",
    id: int = 0,
    window_bytes: int = WINDOW,
    window_bytes_max: int = WINDOW,
    guaranteed: dict[str, int] | None = None,
    *,
    ports: tuple[int, int] = (0, 0),
    pacing_bytes_s: int = 0,
    **limits: int,
) -> Any:
    """A struct xts_tenant *; `limits` by the names of enum xts_resource, `ports` of its own, and its rate. What is kept
    without a channel has the limits of what has one, unless it is named."""
    config = worker_ffi.new("struct xts_tenant_config *", {"name": name.encode(), "id": id, "weight": 1})
    config.window_bytes, config.window_bytes_max = window_bytes, window_bytes_max
    config.orphan_timeout_ms = 205_000
    config.pacing_bytes_s = pacing_bytes_s
    config.port_first, config.port_last = ports
    values = LIMITS | limits
    values = {
        "kept": values["connections"],
        "kept_bytes": values["spill_bytes"],
        "names": values["listeners"],
    } | values
    for index, resource in RESOURCES.items():
        config.limit[index] = values.get(resource, 1 << 30)
    for index, pool in POOLS.items():
        config.guaranteed[index] = (guaranteed or {}).get(pool, 0)
    return worker_ffi.gc(worker_lib.xts_tenant_new(config), worker_lib.xts_tenant_release)


def _all_protocols() -> Any:
    """A configuration of protocols that names those that are optional, too."""
    made = worker_ffi.gc(worker_lib.xts_ulp_config_new(worker_ffi.NULL), worker_lib.xts_ulp_config_release)
    for ulp in ulps.ULPS:
        worker_lib.xts_ulp_config_offer(made, ulp.number)
    return made


class Worker:
    """A worker of the proxy; `limits` are those of the tenant that it makes for its channels (make_tenant()) unless
    it is given one, `name_servers` are fields of struct xts_names_config, `rule` changes what is allowed on loopback
    (LOOPBACK), `ports` are those that the kernel picks from for all, with `interfaces_listed=0` it does not know of the
    loopback interface, `ulp` is a struct xts_ulp_config * of the caller's, and `clock_ns` a callback, called in the
    worker's thread in place of its clock."""

    def __init__(
        self,
        policy_default_allow: bool = True,
        ulp: Any = worker_ffi.NULL,
        tenant: Any = None,
        clock_ns: Any = worker_ffi.NULL,
        *,
        name_servers: dict[str, Any] | None = None,
        rule: dict[str, Any] | None = None,
        ports: tuple[int, int] = (0, 0),
        interfaces_listed: int = 1,
        relayed_max: int = 0,
        **limits: int,
    ) -> None:
        config = worker_ffi.new("struct xts_worker_config *")
        protocols = ulp or _all_protocols()
        config.ulp, config.clock_ns = protocols, clock_ns
        config.cpu, config.spin_us, config.relayed_max = -1, 0, relayed_max
        config.closed_sample = 1  # off in most proxies, and so that tests of all kinds of ends make records
        config.policy_default_allow = config.policy_listen_allow = policy_default_allow
        interfaces = worker_ffi.new("struct xts_interface[]", [LO])
        config.interfaces, config.interface_count = interfaces, interfaces_listed
        config.port_first, config.port_last = ports
        rules = worker_ffi.new("struct xts_policy_rule *", LOOPBACK | (rule or {}))
        if policy_default_allow or rule:
            config.rules, config.rule_count = rules, 1
        if name_servers is not None:
            config.names = name_servers
        self.tenant = tenant or make_tenant(**limits)
        out = worker_ffi.new("struct xts_worker **")
        assert worker_lib.xts_worker_start(out, config) == 0
        self.native = out[0]
        self.channels = 0
        self.figures: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        worker_lib.xts_worker_stop(self.native, 0)

    def attach(
        self, epoch: int = 0x1234, *, tenant: Any = None, faults: Faults | None = None, **changes: Any
    ) -> ScriptedHost:
        """A new channel with a host on it, whose link is not open yet. `tenant`: another than the worker's own.
        `faults`: of the worker's queue, in both directions."""
        host_queue, proxy_queue = open_shm_pair()
        if faults:
            proxy_queue = proxy_queue.with_faults(faults, faults)
        native = worker_ffi.cast("struct xts_queue *", proxy_queue.detach())
        assert (
            worker_lib.xts_worker_add_channel(
                self.native, native, -1, self.channels, tenant or self.tenant, worker_ffi.NULL
            )
            == 0
        )
        self.channels += 1
        return ScriptedHost(host_queue, epoch, changes)

    def resume(self, ticket: int, epoch: int, known: bytes, **changes: Any) -> tuple[int, ScriptedHost]:
        """A channel that another worker has left, on a queue of its own: its number, and its host, which has not
        noticed so far."""
        host_queue, proxy_queue = open_shm_pair()
        native = worker_ffi.cast("struct xts_queue *", proxy_queue.detach())
        owner = worker_ffi.new("struct xts_owner *")
        bytes_known = worker_ffi.from_buffer("uint8_t[]", known)
        how = worker_ffi.new("struct xts_resumed *", (ticket, epoch, bytes_known, len(known), owner[0], False))
        number = self.channels
        worker_lib.xts_worker_resume_channel(self.native, native, -1, number, self.tenant, how)
        self.channels += 1
        return number, ScriptedHost(host_queue, epoch, changes)

    def remove_channel(self, number: int) -> None:
        assert worker_lib.xts_worker_remove_channel(self.native, number) == 0

    def stats(self) -> Any:
        out = worker_ffi.new("struct xts_worker_stats *")
        worker_lib.xts_worker_stats(self.native, out)
        return out

    def channel(self, index: int = 0) -> Any:
        out = worker_ffi.new("struct xts_channel_stats[16]")
        assert worker_lib.xts_worker_channels(self.native, out, 16) > index
        self.figures = out  # an item does not keep the array alive
        return out[index]

    def connection(self, index: int = 0) -> Any:
        """Figures of a connection or listener."""
        out = worker_ffi.new("struct xts_connection_stats[256]")
        assert worker_lib.xts_worker_connections(self.native, out, 256) > index
        self.figures = out  # an item does not keep the array alive
        return out[index]

    def closed(self) -> list[Any]:
        """Records of connections that have ended since the last call."""
        out = worker_ffi.new("struct xts_closed_stats[64]")
        count = worker_lib.xts_worker_closed(self.native, out, 64)
        assert count >= 0
        self.figures = out
        return list(out[0:count])

    def used(self, resource: str, tenant: Any = None) -> int:
        """What the tenant, or another one, uses, by the name of a resource."""
        out = worker_ffi.new("struct xts_tenant_stats *")
        worker_lib.xts_tenant_stats(tenant or self.tenant, out)
        return int(out.used[next(index for index, name in RESOURCES.items() if name == resource)])

    def drain(self) -> None:
        worker_lib.xts_worker_drain(self.native)

    def wait(self, reached: Any, what: str) -> None:
        """Waits until a condition on the worker's figures holds."""
        deadline = time.monotonic() + 20 * SLOWER  # 5 s were too few where eight files share two cores under ASan
        while not reached(self.stats()):
            assert time.monotonic() < deadline, what
            time.sleep(0.001)


@dataclass
class ScriptedHost:
    """One host process as the proxy sees it. Context manager."""

    queue: queue.Queue
    epoch: int
    changes: dict[str, Any] = field(default_factory=dict)
    token: bytes = b""  # of the agent's, to be shown with HELLO
    next_socket: int = 1
    tokens: int = 0
    backlog: list[codec.Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.link = ffi.new("struct xts_link *")
        config = ffi.new("struct xts_link_config *")
        config.role = lib.XTS_LINK_HOST
        config.local_mac, config.peer_mac = self.queue.local_mac, self.queue.peer_mac
        config.frame_window, config.largest_message = 64, table.FRAME_BYTES_MAX
        config.epoch, config.pid, config.dead_ms = self.epoch, os.getpid(), NEVER_MS
        self.link_token = ffi.from_buffer("uint8_t[]", self.token)  # the link keeps its address
        config.token, config.token_bytes = self.link_token, len(self.token)
        for name, value in self.changes.items():
            setattr(config, name, value)
        assert lib.xts_link_init(self.link, config, now_ns()) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close()

    @property
    def up(self) -> bool:
        return bool(self.link.state == lib.XTS_LINK_UP)

    def open(self) -> Self:
        """Opens the link and waits for the answer."""
        deadline = time.monotonic() + 5 * SLOWER
        while not self.up and self.link.state != lib.XTS_LINK_DOWN:
            self.pump(10)
            assert time.monotonic() < deadline, "no answer to HELLO"
        assert self.up, f"refused: {errno.errorcode.get(self.link.error)}"
        return self

    def raw(self, frame: bytes) -> None:
        """Sends bytes as they are."""
        self.queue.send(frame)

    def send(self, name: str, payload: bytes = b"", flags: int = 0, error: int = 0, id: int = 0, **fields: Any) -> None:
        """Sends a message, properly sealed; waits for a frame credit."""
        message = codec.Frame(name, fields, payload, flags=flags, error=error, id=id)
        frame = bytearray(codec.encode(message))
        deadline = time.monotonic() + 5 * SLOWER
        while not lib.xts_link_credits(self.link):
            self.pump(10)
            assert time.monotonic() < deadline and self.up, "no frame credit"
        lib.xts_link_seal(self.link, ffi.from_buffer(frame))
        self.queue.send(bytes(frame))

    def pump(self, timeout_ms: int) -> None:
        """Sends what the link has due, and takes one frame if one comes."""
        memory = ffi.new("uint8_t[]", int(lib.XTS_LINK_CONTROL_BYTES_MAX))
        lib.xts_link_tick(self.link, now_ns())
        while length := lib.xts_link_control(self.link, memory, now_ns()):
            self.queue.send(bytes(ffi.buffer(memory, length)))
        try:
            frame = self.queue.wait(timeout_ms)
        except TimeoutError:
            return
        data = bytes(frame)
        frame.recycle()
        head = ffi.new("struct xts_head *")
        verdict = lib.xts_link_receive(self.link, ffi.from_buffer(data), min(len(data), 128), len(data), now_ns(), head)
        if verdict == lib.XTS_LINK_DELIVER:
            lib.xts_link_recycled(self.link)
            self.backlog.append(codec.decode(data))

    def receive(self, timeout_ms: int = NEVER_MS) -> codec.Frame:
        """The next message from the proxy. TimeoutError after silence."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.backlog:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "nothing from the proxy")
            self.pump(max(1, min(100, int(left * 1000))))
            if not self.up and not self.backlog:
                raise ConnectionResetError(self.link.error, f"link down: {errno.errorcode.get(self.link.error)}")
        return self.backlog.pop(0)

    def expect(self, name: str, timeout_ms: int = NEVER_MS) -> codec.Frame:
        """The next message, which must be of this type."""
        frame = self.receive(timeout_ms)
        assert frame.name == name, frame
        return frame

    def wait_down(self) -> int:
        """Waits for the end of the link; its errno."""
        deadline = time.monotonic() + 5 * SLOWER
        while self.up:
            self.pump(10)
            assert time.monotonic() < deadline, "the link is still up"
        return int(self.link.error)

    def new_socket(self) -> int:
        self.next_socket += 1
        return self.next_socket

    def ioctl(self, request: str, payload: bytes = b"", id: int = 0, number: int = 0) -> codec.Frame:
        """An IOCTL, by its name in `ulps.REQUESTS`, and its answer; what crosses it stays in the backlog."""
        self.tokens += 1
        code = ulps.REQUESTS[request][0]
        fields = {"xts_socket": number, "token": self.tokens, "domain": 4, "request": code}
        self.send("XTS_CMD_IOCTL", payload, id=id, **fields)
        passed = []
        while (frame := self.receive()).name != "XTS_REPLY_IOCTL_ACK" or frame.fields["token"] != self.tokens:
            passed.append(frame)
        self.backlog[:0] = passed
        return frame

    def push(
        self,
        ulp: str,
        id: int = 0,
        number: int = 0,
        *,
        way: str = "PUSH_ULP",
        read_bytes: int = 0,
        message: bool = True,
        **parameters: ulp_attributes.Value,
    ) -> codec.Frame:
        """A push and its answer."""
        attributes = ulp_attributes.encode_attributes(ulp, parameters)
        payload = struct.pack("!IHH", read_bytes, int(message), ulps.BY_NAME[ulp].number) + attributes
        return self.ioctl(way, payload, id, number)

    def ulp_error(self, id: int, number: int) -> ulp_attributes.UlpError:
        """Why a push was refused or the connection has failed."""
        return ulp_attributes.decode_error(self.ioctl("ULP_ERROR", id=id, number=number).payload)

    def connect(
        self, host: str, port: int, window: int = WINDOW, id: int = 0, number: int = 0
    ) -> tuple[int, codec.Frame]:
        """CONNECT and its answer; the socket's number (a new one if 0) and the answer."""
        number = number or self.new_socket()
        peer = codec.Endpoint.of(host, port)
        self.send("XTS_CMD_CONNECT", id=id, xts_socket=number, post_credits=window, domain=peer.ip_version, peer=peer)
        return number, self.expect("XTS_REPLY_CONNECT_ACK")
