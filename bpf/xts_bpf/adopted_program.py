"""The steering program of a process that hands it over: it stays attached, and we go on with it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress

from xts_bpf.interface_state import read_state
from xts_bpf.native import lib
from xts_bpf.program import SteerProgram, interface_index


class AdoptedProgram(SteerProgram):
    """Made of descriptors, which this object owns from then on. Nobody can have one of them whom the process that has
    loaded the program has not given it. Closing this object leaves the program attached: at a failed hand-over it is
    the other process's."""

    def __init__(self, interface: str, program_id: int, descriptors: Mapping[str, int]) -> None:
        """`descriptors`: as handed() has them. OSError ENODEV: the interface is not there; EPROTO: this is not the
        program."""
        self.interface = interface
        self._owned = list(descriptors.values())
        self._object = self._joined = None
        self._objects = []
        self._ifindex = interface_index(interface)
        self._fd = descriptors["program"]
        self._sockets_fd, self._owners_fd = descriptors["sockets"], descriptors["owners"]
        self._counters_fd, self._secrets_fd = descriptors["counters"], descriptors["secrets"]
        self._probes_fd = descriptors["probes"]
        if not program_id or int(lib.xts_bpf_program_id(self._fd)) != program_id:
            raise OSError(errno.EPROTO, f"what was handed over of {interface} is not its XDP program {program_id}")
        self.is_shared, self.attached_id = False, program_id
        state = read_state(interface)
        if state and state.program_id not in (0, program_id):
            with suppress(OSError):  # whoever may not ask takes it for another program's place
                self.is_shared = bool(self.find_again(self._ifindex))

    def close(self) -> None:
        """The same as leave()."""
        self.leave()

    def leave(self) -> None:
        """Closes this object. May be called again."""
        while self._owned:
            os.close(self._owned.pop())
        super().leave()
