"""Who may have how many queues: a user as many as the agent's configuration allows, a pod of Kubernetes as many as it
was allocated.

A queue is charged from the time it is given until it is open again (queue_pool.py), because descriptors cannot be
revoked. For processes in pods the user does not count, since most pods run as user 0 or 1000.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from xts_messages.attaching.attachments import NotReady

from xts_agent.pods import Pod
from xts_agent.queue_pool import Pool, Slot
from xts_agent.relay import Relay


def check_user(pools: Sequence[Pool], uid: int, limit: int, interfaces: str) -> None:
    """Raises the error for a user who occupies as many queues as allowed (0: any number; root is exempt): NotReady if
    some of them may be free in a moment."""
    charged = [slot for pool in pools for slot in pool.charged(uid)]
    if not uid or not limit or len(charged) < limit:
        return
    if _some_are_coming_back(charged):
        raise NotReady
    text = f"user {uid} has {len(charged)} queues of {interfaces}, the most allowed{_kept_among(charged)}"
    raise OSError(errno.EUSERS, text)


def check_user_relayed(relays: Sequence[Relay], uid: int, full: OSError) -> None:
    """As check_user(), for places at relays, of which a quarter is left for others. `full`: why the process gets no
    queue."""
    held = sum(relay.charged(uid) for relay in relays)
    total = sum(relay.channels_max for relay in relays)
    if uid and held >= max(1, total - total // 4):
        raise OSError(errno.EUSERS, f"{full.strerror}; user {uid} has {held} places at the relay, the most allowed")


def check_pod(pools: Sequence[Pool], relays: Sequence[Relay], pod: Pod) -> None:
    """As check_user(), for a pod; places at relays count together with queues."""
    if not pod.queues:
        raise OSError(errno.EUSERS, f"{pod} was allocated no queue: its containers have to ask for some (resources)")
    charged = [slot for pool in pools for slot in pool.charged_to_pod(pod.uid)]
    held = len(charged) + sum(relay.charged_to_pod(pod.uid) for relay in relays)
    if held < pod.queues:
        return
    if _some_are_coming_back(charged):
        raise NotReady
    text = f"{pod} has {held} queues, and was allocated {pod.queues}{_kept_among(charged)}"
    raise OSError(errno.EUSERS, text)


def _some_are_coming_back(charged: Sequence[Slot]) -> bool:
    return not all(slot.is_held() for slot in charged)


def _kept_among(charged: Sequence[Slot]) -> str:
    kept = sum(slot.kept and not slot.before_us for slot in charged)
    if not kept:
        return ""
    return f"; {kept} of them without an attachment: some process keeps the descriptors, end it"
