"""What may be, and what was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.disturbance import Allows
from chaos.loads import Seen
from chaos.plan import Step
from chaos.scene import Scene

#: What a call of a socket whose device, way or peer is lost may say.
ERRNOS = frozenset(
    ["ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EPIPE", "ENETDOWN", "ENETUNREACH", "EHOSTUNREACH", "ENETRESET"]
)
#: And what the library says of a proxy that is about to stop (MESSAGES.md; with XTS_STRICT).
STOPPING = frozenset(["ESHUTDOWN", "EUSERS"])
#: And what a device says that has no room.
NO_ROOM = frozenset(["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"])
#: How soon after a disturbance every load gets on again.
RECOVERS_S = 10.0
#: Descriptors that come and go with connections.
SLACK = 40


def counted(seen: Sequence[Seen]) -> list[str]:
    """The first of each sort, and how many more there were."""
    sorts: dict[tuple[str, str, object], list[Seen]] = {}
    for one in seen:
        sorts.setdefault((one.load, one.what, one.more.get("errno")), []).append(one)
    return [f"{same[0]}{f', and {len(same) - 1} times more' if len(same) > 1 else ''}" for same in sorts.values()]


@dataclass(frozen=True)
class Failure:
    step: Step | None
    why: str

    def __str__(self) -> str:
        return f"step {self.step.number}, {self.step}: {self.why}" if self.step else self.why


class Oracle:
    """Judges step by step what loads have seen since the last one."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._judged = 0
        self.slowest_s = 0.0  # from the end of a disturbance until all got on
        self.failures: list[Failure] = []

    def all_got_on(self, step: Step | None, since: float) -> None:
        """Waits until every load that asks has had an answer that it asked for after `since`."""
        deadline = since + RECOVERS_S
        asking = [load for load in self._scene.loads if not load.kind.serves]
        while left := [load.name for load in asking if load.got_on_at <= since]:
            if time.monotonic() > deadline:
                self.failures.append(Failure(step, f"after {RECOVERS_S:g} s not on again: {', '.join(left)}"))
                return
            time.sleep(0.005)
        self.slowest_s = max(self.slowest_s, time.monotonic() - since)

    def judge(self, step: Step | None, begun: float) -> None:
        """What was seen since the last time, during the step that began at `begun`."""
        seen = self._scene.seen[self._judged :]
        self._judged += len(seen)
        allowed = {disturbance.allows for disturbance, _ in step.parts} if step else {Allows.NOTHING}
        self.failures += [
            Failure(step, why) for why in counted(one for one in seen if not self._may_be(one, allowed, begun))
        ]

    def _may_be(self, seen: Seen, allowed: set[Allows], begun: float) -> bool:
        if seen.what != "failed":
            return False
        name = seen.more["errno"]
        if Allows.ENDS in allowed and name in ERRNOS | NO_ROOM | STOPPING:
            return True
        if Allows.SHARED_END in allowed and seen.load.startswith("family") and name in ERRNOS:
            return True
        # its child is a new process
        is_new = seen.load.startswith("family") or seen.at - seen.more["age_s"] >= begun - 0.1
        return Allows.NEW_FAIL in allowed and is_new and name in ERRNOS | NO_ROOM

    def flat(self, before: dict[str, int], after: dict[str, int]) -> None:
        """Processes that were there at both times have no more descriptors than connections may account for."""
        for process in before.keys() & after.keys():
            if after[process] > before[process] + SLACK:
                why = f"{process} has {after[process]} descriptors, and had {before[process]}"
                self.failures.append(Failure(None, why))
