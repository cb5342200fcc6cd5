"""Giving frames from the network to processors by their class, with the program xts_classes.bpf.c on an interface.

The program is attached by a link of BPF: it is there until the last process that has the link's descriptor ends or
closes it, and needs nobody to take it away. What it has counted is read from memory that is shared with the kernel, so
a process that has given up its privileges still can.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

from xts_bpf.bpf_object import checked, descriptor_of, map_of, open_object, programs
from xts_bpf.native import FOLDER, ffi, lib
from xts_bpf.program import interface_index

OBJECT = FOLDER / "xts_classes.bpf.o"
RULES_MAX, CPUS_MAX = 64, 128
#: How many frames may wait for a processor. Beyond that they are dropped, as in any full receive queue.
CPU_QUEUE = 2048
_CHOOSES, _ARRIVED = "xts_classes", "xts_class_arrived"
_RULE, _CPU, _NUMBER = struct.Struct("=IIII"), struct.Struct("=Ii"), struct.Struct("=I")
_COUNT = struct.Struct("=Q")


class Kind(IntEnum):
    """What a rule looks at."""

    DSCP = 1
    FLOW_LABEL = 2
    VNI = 3


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Frames with this value go to this processor. The first rule that matches decides."""

    kind: Kind
    value: int
    cpu: int


class Classes:
    """The rules of one interface, in force while this object is open. A context manager.

    Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN at the beginning, and CAP_SYS_ADMIN to replace what another process has
    attached. OSError: EBUSY: the interface has another XDP program; EOPNOTSUPP: its driver has no native XDP.
    """

    def __init__(self, interface: str, rules: Sequence[ClassRule]) -> None:
        self.interface = interface
        self.rules = tuple(rules)
        self._index = interface_index(interface)
        with ExitStack() as undo:
            opened = open_object(OBJECT, f"opening {OBJECT}")
            undo.callback(lib.bpf_object__close, opened)  # the link keeps the program and its maps
            checked(lib.bpf_object__load(opened), f"loading {OBJECT}")
            of_it = programs(opened)
            self._fill(opened, descriptor_of(of_it[_ARRIVED]))
            self._frames = mmap.mmap(
                map_of(opened, "xts_class_frames"),
                RULES_MAX * CPUS_MAX * _COUNT.size,
                mmap.MAP_SHARED,
                mmap.PROT_READ,
            )
            link = lib.xts_bpf_link(self._index, descriptor_of(of_it[_CHOOSES]), _CHOOSES.encode())
            self._link = checked(link, f"attaching the XDP program for classes to {interface}")

    def _fill(self, opened: Any, arrived: int) -> None:
        rules, cpus = map_of(opened, "xts_class_rules"), map_of(opened, "xts_class_cpus")
        for i, rule in enumerate(self.rules):
            what = f"the processor {rule.cpu} for frames of {self.interface}"
            self._update(cpus, rule.cpu, _CPU.pack(CPU_QUEUE, arrived), what)
            self._update(rules, i, _RULE.pack(rule.kind, rule.value, rule.cpu, 0), f"rule {i} of {self.interface}")

    def _update(self, fd: int, key: int, value: bytes, what: str) -> None:
        if lib.bpf_map_update_elem(fd, _NUMBER.pack(key), value, 0) < 0:
            checked(-int(ffi.errno), what)

    @property
    def present(self) -> bool:
        """Is the interface still the one that has the program? Nobody can take the program off, but an interface can be
        removed, and made again without it."""
        try:
            return interface_index(self.interface) == self._index
        except OSError:
            return False

    def frames(self, rule: int) -> dict[int, int]:
        """How many frames of a rule have arrived, by the processor on which."""
        counts = _COUNT.iter_unpack(self._frames[rule * CPUS_MAX * _COUNT.size : (rule + 1) * CPUS_MAX * _COUNT.size])
        return {cpu: count for cpu, (count,) in enumerate(counts) if count}

    def close(self) -> None:
        """Ends the rules, unless another process has taken them over. May be called again."""
        if self._link >= 0:
            os.close(self._link)
            self._frames.close()
        self._link = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
