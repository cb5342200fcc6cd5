"""Which numbers of queues are free again: workers are asked, but not for each process that comes or goes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from beds.few_descriptors import few_descriptors
from xts_messages.attaching.attach import attach
from xts_messages.attaching.attachments import Peer
from xts_proxy.config.config import Config, Proxy
from xts_proxy.config.config_limits import Limits
from xts_proxy.queues.shm_channels import ShmChannels
from xts_proxy.tenants.tenants import Tenants


@dataclass(eq=False)
class FakeWorker:
    """Ends a channel when it is told to, and counts how often it is asked what is left."""

    index: int = 0
    queues: set[int] = field(default_factory=set)
    asked: int = 0

    def add_channel(self, end: Any, queue_id: int, tenant: Any, life_fd: int, owner: Any) -> None:
        self.queues.add(queue_id)

    def queue_ids(self) -> list[int]:
        self.asked += 1
        return sorted(self.queues)

    def pulse(self) -> tuple[float, str]:
        return 0.0, ""


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def channels(tmp_path: Path, worker: FakeWorker) -> Iterator[ShmChannels]:
    path = str(tmp_path / "endpoint.sock")
    config = Config(proxy=Proxy(endpoint=path), limits=Limits(clients=20))
    made = ShmChannels(config, Tenants(config))
    made.give_to(cast(Any, [worker]))
    yield made
    made.close()


def come_and_go(channels: ShmChannels, worker: FakeWorker) -> None:
    """One process, in a thread of its own while it waits for the answer."""
    attached: list[Any] = []
    path = channels.config.proxy.endpoint
    thread = threading.Thread(target=lambda: attached.append(attach(path, program="test")))
    thread.start()
    while thread.is_alive():
        channels.endpoint.process(0.01)
        channels.reap()
    thread.join()
    attached[0].close()
    while channels.endpoint.attachments:
        channels.endpoint.process(0.01)
        channels.reap()
    worker.queues.clear()


def test_workers_are_asked_seldom_however_many_come_and_go(channels: ShmChannels, worker: FakeWorker) -> None:
    for _ in range(10):
        come_and_go(channels, worker)
    assert channels.attaches == 10
    assert worker.asked < 10
    while (again_s := channels.reap()) is not None:
        assert again_s <= 0.05
    assert not channels.clients


def test_who_would_be_refused_has_it_looked_at_once(channels: ShmChannels, worker: FakeWorker) -> None:
    """As many as there may be have ended, and nobody has looked yet."""
    for _ in range(40):
        come_and_go(channels, worker)
    assert (channels.attaches, channels.refusals) == (40, 0)


def test_a_worker_that_cannot_take_a_process_is_the_reason_that_it_hears(
    channels: ShmChannels, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(worker, "add_channel", full)
    caught: list[OSError] = []

    def one() -> None:
        try:
            attach(channels.config.proxy.endpoint, program="test")
        except OSError as error:
            caught.append(error)

    thread = threading.Thread(target=one)
    thread.start()
    while thread.is_alive():
        channels.endpoint.process(0.01)
    thread.join()
    (error,) = caught
    assert error.errno == errno.EUSERS and "no descriptors are left" in str(error)
    assert channels.refusals == 1 and not channels.clients


@pytest.mark.parametrize("free", range(8))
def test_what_was_made_for_a_process_that_there_is_no_room_for_is_closed(
    channels: ShmChannels, worker: FakeWorker, free: int
) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    peer = Peer(os.getpid(), os.getuid(), os.getgid(), "test", 0, 0)
    with few_descriptors(os.getpid(), free):
        try:
            granted = channels._allocate(peer, 1)
        except OSError as error:
            assert error.errno == errno.EMFILE
            assert not channels.clients
        else:
            assert free >= 4
            for fd in granted.descriptors:
                os.close(fd)
            for client in channels.clients.values():
                client.close()
            channels.clients.clear()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("number", "kept"), [(errno.EPIPE, True), (errno.ENOBUFS, False)])
def test_the_next_workers_may_die_as_well(channels: ShmChannels, worker: FakeWorker, number: int, kept: bool) -> None:
    """While they are given the channels: these wait for the ones after them. A channel that they refuse ends."""
    path = channels.config.proxy.endpoint
    attached: list[Any] = []
    thread = threading.Thread(target=lambda: attached.append(attach(path, program="test")))
    thread.start()
    while thread.is_alive():
        channels.endpoint.process(0.01)
    thread.join()

    def recover_channel(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    worker.recover_channel = recover_channel  # type: ignore[attr-defined]
    if kept:
        with pytest.raises(BrokenPipeError):
            channels.recover()
    else:
        assert channels.recover() == 0
    assert bool(channels.endpoint.attachments) == kept
    attached[0].close()


def test_workers_that_die_while_they_are_asked_who_has_ended(channels: ShmChannels, worker: FakeWorker) -> None:
    """The supervisor's log has no traceback, and who attaches meanwhile is not refused."""
    come_and_go(channels, worker)

    def queue_ids() -> list[int]:
        raise BrokenPipeError(errno.EPIPE, "the workers' process does not answer: it has ended")

    worker.queue_ids = queue_ids  # type: ignore[method-assign]
    channels._reap_at = 0.0
    assert channels.reap() is not None
    assert len(channels.clients) == 1  # whom the next workers' process is asked about
