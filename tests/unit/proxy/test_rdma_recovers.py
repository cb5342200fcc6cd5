"""Queues over RDMA when the workers have died, and while another proxy takes over."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from xts_messages.queues.queue_kinds import CARRIED, PROXY, open_ends
from xts_proxy.queues.rdma_channels import RdmaChannels
from xts_proxy.queues.rdma_place import Place


class Acceptor:
    def __init__(self) -> None:
        self.why = ""

    def end(self, why: str) -> None:
        self.why = why


class Worker:
    """Goes on with a queue, or fails."""

    def __init__(self, failure: OSError | None) -> None:
        self.failure = failure

    def recover_channel(self, end: Any, queue_id: int, whose: Any, life_fd: int, *, frames: Any) -> int:
        assert (end.kind, queue_id, whose) == ("carried", 0, ("default", None)) and life_fd >= 0
        if self.failure:
            raise self.failure
        return 3


def channels_with(place: Place) -> RdmaChannels:
    channels = object.__new__(RdmaChannels)
    channels._places = [place]
    channels.config = SimpleNamespace(proxy=SimpleNamespace(interface="ib0"))  # type: ignore[assignment]
    channels.tenants = SimpleNamespace(of_queue=lambda *_: "default")  # type: ignore[assignment]
    return channels


def served(failure: OSError | None) -> tuple[Place, Acceptor]:
    """A queue that a worker has."""
    acceptor = Acceptor()
    place = Place(0, acceptor, None, problem="", peer="10.0.0.1")  # type: ignore[arg-type]
    host, proxy = open_ends(CARRIED)
    socket.socket(fileno=host.descriptors[1]).close()
    life, its = socket.socketpair()
    its.close()
    place.have(Worker(failure), proxy, life)  # type: ignore[arg-type]
    return place, acceptor


def test_another_process_goes_on() -> None:
    place, acceptor = served(None)
    channels = channels_with(place)
    assert channels.survives() and channels.recover() == 3
    assert list(channels.served()) == [0] and not acceptor.why
    place.drop()
    assert channels.recover() == 0 and not channels.served()
    place.drop()


def test_a_queue_that_cannot_go_on_ends_with_its_connection() -> None:
    """Its agent connects again. The others go on."""
    place, acceptor = served(OSError(errno.EBADMSG, "its rings make no sense"))
    channels = channels_with(place)
    assert channels.recover() == 0
    assert acceptor.why == "its rings make no sense" and not channels.served()


def test_workers_that_die_again_leave_it_to_the_next_ones() -> None:
    place, acceptor = served(BrokenPipeError(errno.EPIPE, "the workers have died"))
    channels = channels_with(place)
    with pytest.raises(BrokenPipeError):
        channels.recover()
    assert not acceptor.why and list(channels.served()) == [0]
    place.drop()


def test_who_takes_over_answers_nobody_before_it_has_everything() -> None:
    """The one before may have to go on, and needs what they have said."""
    channels = channels_with(Place(0, None, None))  # type: ignore[arg-type]
    channels._answering, channels._taking = False, True
    channels.accept(True)
    assert not channels._answering


def test_the_memory_of_a_queue_is_one_descriptor_at_both_ends() -> None:
    """Which place.offer() goes by."""
    host, proxy = open_ends(CARRIED)
    assert host.descriptors[0] == proxy.descriptors[0] and host.descriptors[1] != proxy.descriptors[1]
    with proxy.adopt(PROXY):
        socket.socket(fileno=host.descriptors[1]).close()
