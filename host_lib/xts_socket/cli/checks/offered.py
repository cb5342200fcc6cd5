"""What the endpoint says of its queues. Several checks need it, and an endpoint that stands still is asked once: four
questions took twenty seconds."""

from __future__ import annotations

from xts_messages.attaching.attach import OfferedQueues, list_queues

from ..options import endpoint_path

_answer: list[OfferedQueues] | OSError | None = None


def queues() -> list[OfferedQueues]:
    """As list_queues(), which is asked the first time. OSError: there is no endpoint, as another check says; or it is
    older, or stands still."""
    global _answer  # noqa: PLW0603  one look at one endpoint
    if _answer is None:
        try:
            _answer = list(list_queues(endpoint_path()))
        except OSError as error:
            _answer = error
    if isinstance(_answer, OSError):
        raise _answer
    return _answer


def forget() -> None:
    """The next look asks again."""
    global _answer  # noqa: PLW0603
    _answer = None
