"""The same scripts with sockets of another stack: at an endpoint that has a name, or in a stack for each thread.

Under the interposer an epoll set belongs to the stack of the first offloaded socket in it. In the modes with
`SETS_ELSEWHERE` that is a socket which the script knows nothing of, in another stack, so that all others in the set are
of another stack than the set."""

from __future__ import annotations

import fcntl
import os
import re
import select
import socket
import threading
from dataclasses import dataclass

ELSEWHERE = "SETS_ELSEWHERE"
DECOY_AT = "127.0.0.9"
FIRST_NUMBER = 300  # above those that scripts look at


@dataclass(frozen=True, slots=True)
class Mode:
    named: bool  # the rules name the endpoint
    environment: dict[str, str]

    def rules(self, text: str, endpoint: str) -> str:
        if not self.named:
            return text
        named = re.sub(r"^use xts ", "use xts@one ", text, flags=re.MULTILINE)
        return f"endpoint one {endpoint}\nuse xts tcp_server {DECOY_AT}:*\n{named}"


#: The default endpoint and one stack are what tests have otherwise.
MODES: dict[str, Mode] = {
    "named": Mode(True, {}),
    "set_elsewhere": Mode(True, {ELSEWHERE: "1"}),
    "stack_for_each_thread": Mode(False, {ELSEWHERE: "1", "XTS_STACKS": "thread"}),
}

_decoys: list[int] = []


def _make() -> None:
    with socket.socket() as made:
        made.bind((DECOY_AT, 0))
        made.listen()
        _decoys.append(fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, FIRST_NUMBER))


def decoy() -> int | None:
    """The descriptor of a socket for a new set, to be registered for no events; None: the mode has none."""
    if ELSEWHERE not in os.environ:
        return None
    if not _decoys:
        maker = threading.Thread(target=_make)
        maker.start()
        maker.join()
    return _decoys[0]


def put_elsewhere(made: select.epoll) -> select.epoll:
    """The same set, with the decoy in it if there is one."""
    if (fd := decoy()) is not None:
        made.register(fd, 0)
    return made
