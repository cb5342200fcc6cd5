"""Attach tokens: what opens a channel where agent and proxy share a key, and whose costs it is."""

from __future__ import annotations

import errno
import hmac
import os
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.share import goodbye
from xts_messages._native import ffi
from xts_messages.attaching import attach_token
from xts_messages.queues.queue_kinds import CARRIED, PROXY, SHM, QueueEnd, open_ends
from xts_messages.queues.queue_kinds import HOST as HOST_END
from xts_messages.wire.wire_table import FEATURES
from xts_proxy._native import ffi as worker_ffi
from xts_proxy._native import lib as worker_lib
from xts_proxy.tenants.tenants import RESOURCES

KEY = bytes(range(32))
UID = 1000
CGROUP = "/system.slice/web.service"
HOST, DEVICE = b"\x02xts\0\1", b"\x02xts\0\2"  # stations of a queue in shared memory
LIFETIME_MS = attach_token.LIFETIME_S * 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def token(epoch: int, key: bytes = KEY, **changes: Any) -> bytes:
    claims = {"queue_id": 0, "uid": UID, "cgroup": CGROUP, "expires_ms": now_ms() + LIFETIME_MS} | changes
    return attach_token.make(key, HOST, DEVICE, **{"epoch": epoch} | claims)


class Agents:
    """Agents of a host, one after the other, with a clock that the test sets."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.start()

    def start(self) -> None:
        """The next agent."""
        self._issuer = attach_token.Issuer(KEY, lambda: now_ms() + self.ahead_ms)

    def token(self, epoch: int) -> bytes:
        return self._issuer.token(HOST, DEVICE, queue_id=0, uid=UID, cgroup=CGROUP, epoch=epoch)


def trust(worker: Worker, *rules: dict[str, Any]) -> None:
    native = worker_ffi.new("struct xts_identity_rule[]", len(rules))
    for rule, found in zip(native, rules, strict=True):
        rule.queue_last = 255
        for name, value in found.items():
            setattr(rule, name, value)
        rule.any_uid = "uid" not in found
        rule.cgroup_bytes = len(found.get("cgroup", b""))
    assert worker_lib.xts_worker_trust(worker.native, KEY, len(KEY), native, len(rules)) == 0


def showing(host: ScriptedHost, epoch: int, shown: bytes) -> ScriptedHost:
    """The next process on the same queue, with this token; none when it is empty."""
    return ScriptedHost(host.queue, epoch, {"token": ffi.from_buffer(shown), "token_bytes": len(shown)})


def refused_with(host: ScriptedHost) -> int:
    with pytest.raises(AssertionError, match="refused"):
        host.open()
    return int(host.link.error)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        trust(made)
        yield made


def test_a_token_of_the_agents_opens_the_link(worker: Worker) -> None:
    with worker.attach(7) as queue:
        host = showing(queue, 7, token(7)).open()
        assert host.link.features & FEATURES["TOKEN"][0]


@pytest.mark.parametrize(
    "shown, error",
    [
        (b"", errno.ENOKEY),
        (token(7, os.urandom(32)), errno.EKEYREJECTED),
        (token(7, queue_id=1), errno.EKEYREJECTED),
        (token(8), errno.EKEYREJECTED),
        (token(7)[:4] + bytes(4) + token(7)[8:], errno.EKEYREJECTED),
        (token(7)[:-1] + b"x", errno.EKEYREJECTED),
        (token(7, expires_ms=now_ms() - 1), errno.EKEYEXPIRED),
        (token(7, expires_ms=now_ms() + 1000 * LIFETIME_MS), errno.EKEYEXPIRED),
    ],
    ids=["none", "another key", "another queue", "another epoch", "another user", "another cgroup", "old", "early"],
)
def test_nothing_else_does(worker: Worker, shown: bytes, error: int) -> None:
    with worker.attach(7) as queue:
        assert refused_with(showing(queue, 7, shown)) == error
        showing(queue, 7, token(7)).open()


def test_an_attachment_that_has_ended_opens_nothing_again(worker: Worker) -> None:
    with worker.attach(7) as queue:
        first = token(7)
        host = showing(queue, 7, first).open()
        goodbye(host)
        worker.wait(lambda stats: stats.channels_up == 0, "the epoch has ended")
        assert refused_with(showing(queue, 9, b"")) == errno.ENOKEY  # the link has forgotten epoch 7 by now
        assert refused_with(showing(queue, 7, first)) == errno.EKEYREVOKED
        assert refused_with(showing(queue, 9, token(9, expires_ms=now_ms() + 1000))) == errno.EKEYREVOKED, (
            "issued before"
        )
        showing(queue, 9, token(9, expires_ms=now_ms() + LIFETIME_MS + 1)).open()


@pytest.mark.parametrize("kind, error", [(SHM, 0), (CARRIED, errno.ENOKEY)], ids=["shared memory", "over RDMA"])
def test_whose_end_shows_needs_none_if_it_has_attached_here(worker: Worker, kind: int, error: int) -> None:
    """The descriptor of an attached process is its own. That of a connection of RDMA says nothing of who is there."""
    ours, theirs = open_ends(kind)
    memory = os.dup(theirs.descriptors[0])  # adopting takes over, and both ends have the same
    queue = QueueEnd(theirs.geometry, (memory, theirs.descriptors[1]))
    native = worker_ffi.cast("struct xts_queue *", queue.adopt(PROXY).detach())
    life, its = socket.socketpair()
    added = worker_lib.xts_worker_add_channel(worker.native, native, its.detach(), 0, worker.tenant, worker_ffi.NULL)
    assert added == 0
    with life, ScriptedHost(ours.adopt(HOST_END), 7) as host:
        assert (refused_with(host) if error else host.open().link.error) == error


def leave(worker: Worker, host: ScriptedHost) -> None:
    goodbye(host)
    worker.wait(lambda stats: stats.channels_up == 0, "the epoch has ended")


@pytest.mark.parametrize("ahead_s", [86400, -86400], ids=["ahead", "back"])
def test_a_wrong_clock_is_forgotten_as_soon_as_it_is_right_again(worker: Worker, ahead_s: int) -> None:
    agents = Agents()
    with worker.attach(1) as queue:
        leave(worker, showing(queue, 1, agents.token(1)).open())
        agents.ahead_ms = ahead_s * 1000
        for epoch in (2, 3):
            assert refused_with(showing(queue, epoch, agents.token(epoch))) == errno.EKEYEXPIRED
        agents.ahead_ms = 0
        for epoch in (4, 5):
            leave(worker, showing(queue, epoch, agents.token(epoch)).open())


def test_the_order_of_tokens_is_not_that_of_their_clock(worker: Worker) -> None:
    agents = Agents()
    with worker.attach(1) as queue:
        for epoch, ahead_s in enumerate([200, -200, 0, 0, -100, 100], 1):
            agents.ahead_ms = ahead_s * 1000
            unused, used = agents.token(epoch + 100), agents.token(epoch)
            leave(worker, showing(queue, epoch, used).open())
            assert refused_with(showing(queue, 999, b"")) == errno.ENOKEY  # the link forgets its last epoch
            assert refused_with(showing(queue, epoch, used)) == errno.EKEYREVOKED
            assert refused_with(showing(queue, epoch + 100, unused)) == errno.EKEYREVOKED, "made before"


@pytest.mark.parametrize("ahead_s", [0, -200, 200])
def test_another_agent_makes_the_tokens_of_those_before_worthless(worker: Worker, ahead_s: int) -> None:
    agents = Agents()
    kept = []
    with worker.attach(1) as queue:
        for epoch in range(1, 17):
            kept.append((epoch + 100, agents.token(epoch + 100)))  # never shown to the proxy
            leave(worker, showing(queue, epoch, agents.token(epoch)).open())
            kept.append((epoch + 200, agents.token(epoch + 200)))  # made after the one that was shown
            agents.start()
            agents.ahead_ms = ahead_s * 1000
        leave(worker, showing(queue, 17, agents.token(17)).open())
        for epoch, shown in kept:
            assert refused_with(showing(queue, epoch, shown)) == errno.EKEYREVOKED


def test_an_agent_before_claims_and_one_after_it(worker: Worker) -> None:
    agents = Agents()
    with worker.attach(1) as queue:
        old = token(1)
        leave(worker, showing(queue, 1, old).open())
        agents.ahead_ms = -1000
        leave(worker, showing(queue, 2, agents.token(2)).open())
        assert refused_with(showing(queue, 1, old)) == errno.EKEYREVOKED
        leave(worker, showing(queue, 3, token(3)).open())  # the older one is installed again


def connections_of(tenant: Any) -> int:
    out = worker_ffi.new("struct xts_tenant_stats *")
    worker_lib.xts_tenant_stats(tenant, out)
    return int(out.used[next(number for number, name in RESOURCES.items() if name == "connections")])


#: What is behind a cgroup: is the token taken?
PAYLOADS = {
    "a claim of a later version": (b"/\0\xc8\x03abc", True),
    "an empty claim": (b"/\0\xc8\0", True),
    "no claim": (b"/\0", True),
    "a claim of another size": (b"/\0\x01\x02ab", True),
    "a claim that is cut": (b"/\0\xc8\x04abc", False),
    "a claim without size": (b"/\0\xc8", False),
    "a zero byte in the path": (b"\0\xc8\x03abc", False),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_claims_that_are_not_known_are_passed_over(worker: Worker, name: str) -> None:
    behind, taken = PAYLOADS[name]
    payload = CGROUP.encode() + behind
    fixed = struct.pack(">IIQQ", 0, UID, 7, now_ms() + LIFETIME_MS)
    length = struct.pack(">I", len(payload))
    code = hmac.digest(KEY, b"xts attach token 1" + HOST + DEVICE + fixed + length + payload, "sha256")[:16]
    tenant = make_tenant("web", 1)
    trust(worker, {"tenant": tenant, "cgroup": CGROUP.encode()})
    with worker.attach(7) as queue:
        host = showing(queue, 7, fixed + code + length + payload)
        if not taken:
            assert refused_with(host) == errno.EKEYREJECTED
            return
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert host.open().connect("127.0.0.1", server.getsockname()[1])[1].error == 0
            assert connections_of(tenant) == 1, "the cgroup is what is before the claims"


def test_an_older_proxy_takes_the_tokens_of_today() -> None:
    """It checks the code over all of it, takes the whole payload for the cgroup, and the later expiry for the newer."""
    agents = Agents()
    made = [agents.token(epoch) for epoch in range(1, 1000)]
    expiries = []
    for shown in made:
        fixed, code, length, payload = shown[:24], shown[24:40], shown[40:44], shown[44:]
        expected = hmac.digest(KEY, b"xts attach token 1" + HOST + DEVICE + fixed + length + payload, "sha256")
        assert code == expected[:16]
        assert struct.unpack(">I", length)[0] == len(payload) <= 255
        assert payload.startswith(CGROUP.encode() + b"/"), "a rule for the cgroup is also for those below"
        expiries.append(struct.unpack_from(">Q", fixed, 16)[0])
    assert expiries == sorted(set(expiries))


def test_costs_are_those_of_whom_the_token_names(worker: Worker) -> None:
    tenants = {name: make_tenant(name, number) for number, name in enumerate(["user", "group", "rest"], 1)}
    trust(
        worker,
        {"tenant": tenants["user"], "uid": UID, "cgroup": b"/system.slice"},
        {"tenant": tenants["group"], "cgroup": b"/system.slice/web.service"},
        {"tenant": tenants["rest"]},
    )
    expected = {
        (UID, CGROUP): "user",
        (UID, "/system.slice"): "user",
        (UID + 1, CGROUP): "group",
        (UID + 1, CGROUP + "/below"): "group",
        (UID + 1, CGROUP + "x"): "rest",
        (UID, "/system.slicex"): "rest",
        (UID, ""): "rest",
    }
    with socket.create_server(("127.0.0.1", 0)) as server, worker.attach(1) as queue:
        for epoch, ((uid, cgroup), name) in enumerate(expected.items(), 1):
            shown = token(epoch, uid=uid, cgroup=cgroup, expires_ms=now_ms() + LIFETIME_MS + epoch)
            host = showing(queue, epoch, shown).open()
            assert host.connect("127.0.0.1", server.getsockname()[1])[1].error == 0
            used = {}
            for other, tenant in tenants.items():
                used[other] = connections_of(tenant)
            assert used == {other: int(other == name) for other in tenants}, (uid, cgroup)
            goodbye(host, error=errno.ECONNRESET)
            worker.wait(lambda stats: stats.connections == 0, "its connection has ended")


def test_a_proxy_without_a_key_does_not_look_at_tokens() -> None:
    with Worker() as worker, worker.attach(7) as queue:
        host = showing(queue, 7, b"\0" * 44).open()
        assert not host.link.features & FEATURES["TOKEN"][0]


def test_a_long_path_is_cut_at_a_component() -> None:
    path = "/kubepods.slice" + "/" + "p" * 120 + "/" + "c" * 100
    assert attach_token.cut(path.encode()) == path[: path.rindex("/")].encode()
    assert attach_token.cut(b"/" + b"x" * 300) == b""


@pytest.mark.parametrize(
    "content, mode, said",
    [(b"k" * 31, 0o600, "31 bytes"), (b"k" * 129, 0o600, r"129\+ bytes"), (b"k" * 32, 0o640, "read by others")],
)
def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Any, content: bytes, mode: int, said: str) -> None:
    file = tmp_path / "token.key"
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(OSError, match=said):
        attach_token.load_key(str(file))
