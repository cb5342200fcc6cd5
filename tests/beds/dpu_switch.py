"""A second link between the emulated machine (dpu_machine.py) and its host, through a switch that loses frames.

The host's end is a veth interface, the machine's a network card. Between them is a bridge in a namespace of its own,
whose ports are the lab's (deploy/xts_lab/card.py): a program on each loses frames of its cable, and counts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from xts_lab import card, netns

from beds.patience import SLOWER
from beds.ready import readable

SWITCH = "xts-dpu-switch"
BRIDGE = "bridge0"
#: The port of the host's interface, and of the machine's card.
HOST_PORT, CARD_PORT = "port0", "port1"
#: What the ports call the ends of their cables.
TO_HOST, TO_CARD = "host", "card"
START_S = 20.0 * SLOWER


class Switch:
    """A context manager: inside, it forwards. The tap of the machine's card is the caller's to make, before that: in
    the namespace SWITCH, as CARD_PORT."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "card.sock"
        self._log = folder / "switch.log"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            _ip("link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
            for port in (HOST_PORT, CARD_PORT):
                _ip("link", "set", port, "master", BRIDGE, "up")
            _ip("link", "set", BRIDGE, "up")
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: ExitStack) -> None:
        ready, told = os.pipe()
        stack.callback(os.close, ready)
        try:
            ends = [f"{HOST_PORT}={TO_HOST}", f"{CARD_PORT}={TO_CARD}"]
            command = [sys.executable, "-m", "xts_lab.card", str(self._socket), "--bridge", BRIDGE, *ends]
            log = stack.enter_context(self._log.open("w"))
            with netns.inside(SWITCH):
                process = subprocess.Popen(
                    [*command, "--ready-fd", str(told)], pass_fds=(told,), stdout=log, stderr=log
                )
        finally:
            os.close(told)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        assert readable(ready, START_S) and os.read(ready, 1), self._log.read_text()

    def lose(self, percent: float) -> None:
        """From now on both cables lose so many of their frames, and count them from zero."""
        for end in (TO_HOST, TO_CARD):
            card.set_cable(self._socket, end, card.Cable(loss_ppm=int(percent * 10_000)))

    def lost(self) -> dict[str, int]:
        """How many frames each cable has lost."""
        return {end: int(card.ask(self._socket, end, "counted")["lost"]) for end in (TO_HOST, TO_CARD)}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", "-n", SWITCH, *words], check=True)
