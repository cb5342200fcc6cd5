"""A relay that has outlived its agent says whom it serves; what is not said in full, or by whom, is not believed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from xts_agent import found_relay
from xts_bpf.program import Owner
from xts_messages.native import ffi, lib

PLACES = {3: Owner(7, 1000, 42), 9: Owner(8, 0, 43)}


def state(**differs: int) -> bytes:
    """As relay_agents.c says it."""
    said = ffi.new("struct xts_relay_state *")
    said.magic, said.version = lib.XTS_RELAY_STATE_MAGIC, lib.XTS_RELAY_STATE_VERSION
    said.count, said.next = len(PLACES), 10
    said.geometry.queue_id, said.geometry.epoch = 5, 77
    for name, value in differs.items():
        setattr(said, name, value)
    members = ffi.new("struct xts_relay_member[]", len(PLACES))
    for member, (number, owner) in zip(members, PLACES.items(), strict=True):
        member.number, member.uid, member.pid, member.epoch = number, owner.uid, owner.pid, owner.epoch
    return bytes(ffi.buffer(said)) + bytes(ffi.buffer(members))


@contextmanager
def relay(path: Path, said: bytes | None, descriptors: int = 1) -> Iterator[None]:
    """Waits there as one does; says this, or nothing."""
    listener = found_relay.listen(path)
    assert listener
    listener.setblocking(True)
    kept: list[Any] = []

    def serve() -> None:
        connection, _ = listener.accept()
        kept.append(connection)
        if said is not None:
            with suppress(BrokenPipeError):  # whoever came has gone
                socket.send_fds(connection, [said], [listener.fileno()] * descriptors)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        for one in (*kept, listener):
            one.close()


def test_a_relay_is_taken_up_with_all_that_it_says(tmp_path: Path) -> None:
    path = found_relay.path_of(str(tmp_path / "endpoint.sock"), "xts0")
    assert path == tmp_path / "relay-xts0.sock"
    with relay(path, state()):
        assert path.stat().st_mode & 0o777 == 0o600
        found = found_relay.find(path)
        assert found and (found.next, found.members) == (10, PLACES)
        assert (found.geometry.queue_id, found.geometry.epoch) == (5, 77)
        assert found.listener.getsockname() and not found.control.getblocking()
        found.close()


@pytest.mark.parametrize(
    ("said", "descriptors"),
    [
        (state(magic=1), 1),
        (state(version=2), 1),
        (state(count=3), 1),
        (state(count=0xFFFFFFFF), 1),
        (state()[:-1], 1),
        (state()[:10], 1),
        (state(), 0),
        (None, 0),
    ],
    ids=["magic", "version", "more places", "no end of places", "cut off", "hardly begun", "no socket", "silent"],
)
def test_a_relay_that_is_not_understood_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes | None, descriptors: int
) -> None:
    monkeypatch.setattr(found_relay, "ANSWER_S", 0.2)
    with relay(tmp_path / "relay", said, descriptors):
        assert found_relay.find(tmp_path / "relay") is None


def test_a_file_at_which_nobody_waits(tmp_path: Path) -> None:
    path = tmp_path / "relay"
    assert found_relay.find(path) is None
    listener = found_relay.listen(path)
    assert listener
    listener.close()
    assert found_relay.find(path) is None
    again = found_relay.listen(path)
    assert again, "another takes its place"
    again.close()
    found_relay.forget(path)
    assert not path.exists()


def test_where_no_socket_can_be_made_relays_end_with_the_agent(tmp_path: Path) -> None:
    assert found_relay.listen(tmp_path / "nowhere" / "relay") is None


def test_a_socket_of_somebody_else_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_relay, "_user_of", lambda _: 12345)
    with relay(tmp_path / "relay", state()):
        assert found_relay.find(tmp_path / "relay") is None
