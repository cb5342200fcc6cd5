"""From the descriptors that came with a call to a queue, in the workers' process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import PROXY, QueueEnd

from xts_proxy.workers.workers import dead_queue

#: A queue whose frames are on their way when its process dies: how often it is tried, and how long between.
_TRIES, _BETWEEN_S = 500, 0.001
_Done = TypeVar("_Done")


def dressed(
    queue: Queue,
    queue_id: int,
    secrets: list[int],
    repeating: int | None,
    left: tuple[bytes, bytes] = (b"", b""),
    *,
    died: bool = False,
) -> Queue:
    """The queue with heads, if there is a map of secrets, and with XTS_ARQ_*, if lost frames may be repeated. `left`:
    state of the heads, and session of what repeats, where another process has left it, or has `died`. OSError: the
    queue is closed."""
    state, session = left
    with ExitStack() as undo:
        undo.enter_context(queue)
        if secrets:
            queue = undo.enter_context(queue.headed(number=queue_id, secrets_fd=secrets[0], state=state, died=died))
        if repeating is not None:
            queue = undo.enter_context(queue.repeating(repeating, session=b"" if died else session))
            if died and session:
                _patiently(partial(queue.resume_dead_session, session))
        undo.pop_all()
    return queue


def resume_dead(ends: QueueEnd, queue_id: int) -> Queue:
    """The queue of a process that has died. BlockingIOError: its frames stay on their way. OSError: it cannot go on."""
    return _patiently(lambda: ends.resume_dead(PROXY, *dead_queue(queue_id)))


def _patiently(do: Callable[[], _Done]) -> _Done:
    """Until what a dead process has sent has left. BlockingIOError: it does not."""
    for left in reversed(range(_TRIES)):
        try:
            return do()
        except BlockingIOError:
            if not left:
                raise
            threading.Event().wait(_BETWEEN_S)  # no time.sleep(): its system call is forbidden here
    raise AssertionError


def close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
