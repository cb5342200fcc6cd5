"""An agent, or one of its processes, that has no descriptors left: it does without, and goes on when there is room."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.few_descriptors import few_descriptors
from xts_agent import child
from xts_agent.opener_protocol import GEOMETRY_BYTES, Answer, Say, receive_answer
from xts_agent.starter import Role, Starter


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def open_now() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("free", [0, 1])
def test_a_queue_that_does_not_go_in_is_one_that_was_not_opened(
    pair: tuple[socket.socket, socket.socket], free: int
) -> None:
    """And nothing of it stays open here, or the queue would be busy."""
    ours, theirs = pair
    opened = Answer(Say.OPENED, 3, 7, geometry=bytes(GEOMETRY_BYTES), descriptors=(0, 1))
    opened.send(theirs)
    before = open_now()
    with few_descriptors(os.getpid(), free):
        answer = receive_answer(ours)
    assert (answer.say, answer.queue_id, answer.number, answer.error) == (Say.OPENED, 3, 7, errno.EMFILE)
    assert "queue 3" in answer.text and not answer.descriptors
    assert open_now() == before


def test_a_message_whose_descriptors_do_not_go_in(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    child.send(theirs, b"said", (0,))
    with few_descriptors(os.getpid(), 0), pytest.raises(child.LostError) as lost:
        child.receive(ours, 100, 1)
    assert (lost.value.errno, lost.value.data) == (errno.EMFILE, b"said")


def test_a_process_whose_connection_does_not_go_in_is_started_again() -> None:
    def wait(connection: socket.socket) -> int:
        return len(connection.recv(1))

    with Starter([Role("test-child", wait)]) as starter:
        (first,) = starter.first()
        first.close()  # it ends, and another one is started
        assert starter.fileno() in poll(starter)
        with few_descriptors(os.getpid(), 0):
            assert not list(starter.received())
        assert starter.fileno() in poll(starter)
        ((number, connection),) = starter.received()
        assert number == 0
        connection.close()


def poll(starter: Starter) -> list[int]:
    ready = select.poll()
    ready.register(starter, select.POLLIN)
    return [fd for fd, _ in ready.poll(10_000)]
