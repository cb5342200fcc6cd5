"""Attach tokens: what opens a channel where agent and proxy share a key, and whose costs it is."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.share import goodbye
from xts_messages import attach_token
from xts_messages._native import ffi
from xts_messages.wire_table import FEATURES
from xts_proxy._native import ffi as worker_ffi
from xts_proxy._native import lib as worker_lib
from xts_proxy.tenants import RESOURCES

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
    connections = next(number for number, name in RESOURCES.items() if name == "connections")
    with socket.create_server(("127.0.0.1", 0)) as server, worker.attach(1) as queue:
        for epoch, ((uid, cgroup), name) in enumerate(expected.items(), 1):
            shown = token(epoch, uid=uid, cgroup=cgroup, expires_ms=now_ms() + LIFETIME_MS + epoch)
            host = showing(queue, epoch, shown).open()
            assert host.connect("127.0.0.1", server.getsockname()[1])[1].error == 0
            used = {}
            for other, tenant in tenants.items():
                out = worker_ffi.new("struct xts_tenant_stats *")
                worker_lib.xts_tenant_stats(tenant, out)
                used[other] = int(out.used[connections])
            assert used == {other: int(other == name) for other in tenants}, (uid, cgroup)
            goodbye(host, error=errno.ECONNRESET)
            worker.wait(lambda stats: stats.connections == 0, "its connection has ended")


def test_a_proxy_without_a_key_does_not_look_at_tokens() -> None:
    with Worker() as worker, worker.attach(7) as queue:
        host = showing(queue, 7, b"\0" * 44).open()
        assert not host.link.features & FEATURES["TOKEN"][0]


def test_a_long_path_is_cut_at_a_component() -> None:
    path = "/kubepods.slice" + "/" + "p" * 120 + "/" + "c" * 130
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
