"""Which XDP programs an interface has, as libxdp sees them; and ours next to others, in libxdp's dispatcher.

Theory of operation. An interface has one XDP program. libxdp's *dispatcher* is one that calls others in turn, by their
priorities, while each answers XDP_PASS. Tools that use libxdp (xdp-loader, xdp-filter) attach theirs so. Its parts are
pinned under bpffs (/sys/fs/bpf/xdp). Where a dispatcher is there already, ours joins it, before the others: frames of
ours never reach them, and all that we pass does. Else ours is attached alone, through netlink, which needs no bpffs,
and works on kernels that have no dispatcher.

Whenever a program joins or leaves, libxdp makes another dispatcher of all parts and puts it in place of the one before:
the interface's program has another number then, and ours is the same.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_bpf.bpf_object import checked, descriptor_of, programs, said
from xts_bpf.native import ffi, lib

PROGRAM = "xts_steer"
#: Before programs without a wish (50), so that these are not asked for frames that are ours.
PRIORITY = 10
DISPATCHER = "xdp_dispatcher"


@dataclass(frozen=True, slots=True)
class Found:
    """What an interface has. Numbers are the kernel's."""

    number: int = 0  # of the program that is attached; 0: none
    dispatched: bool = False  # it is a dispatcher
    names: tuple[str, ...] = ()  # of the programs, in the order in which they are called
    ours: tuple[int, ...] = ()  # the numbers of those that are called as ours is


def _program_descriptors() -> set[int]:
    """Of this process."""
    found = set()
    with suppress(OSError):  # there is no /proc
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the one that we read with
                if str(entry.readlink()) == "anon_inode:bpf-prog":
                    found.add(int(entry.name))
    return found


@contextmanager
def _nothing_left_open() -> Iterator[set[int]]:
    """libxdp 1.3 leaves descriptors of programs open, which would keep these loaded when everybody else has taken them
    off. One thread loads programs at a time, so that all are libxdp's but those that are added to the set."""
    before = _program_descriptors()
    kept: set[int] = set()
    try:
        yield kept
    finally:
        for fd in _program_descriptors() - before - kept:
            os.close(fd)


@contextmanager
def _looked_up(interface: str, index: int) -> Iterator[Any]:
    """A struct xdp_multiprog, or None: the interface has no program. OSError: that cannot be known."""
    lib.xts_bpf_catch_messages()
    with _nothing_left_open():
        found = lib.xdp_multiprog__get_from_ifindex(index)
        error = int(lib.libxdp_get_error(found))
        if error == -errno.ENOENT:
            yield None
            return
        checked(error, f"finding out which XDP program {interface} has")
        try:
            yield found
        finally:
            lib.xdp_multiprog__close(found)


def _members(found: Any) -> Iterator[Any]:
    """The struct xdp_program of each program that is called."""
    if lib.xdp_multiprog__is_legacy(found):
        yield lib.xdp_multiprog__main_prog(found)
        return
    member = lib.xdp_multiprog__next_prog(ffi.NULL, found)
    while member != ffi.NULL:
        yield member
        member = lib.xdp_multiprog__next_prog(member, found)


def _name(member: Any) -> str:
    name: bytes = ffi.string(lib.xdp_program__name(member))
    return name.decode()


def find(interface: str, index: int) -> Found:
    """What the interface has now. Needs CAP_SYS_ADMIN where it has one, and for a dispatcher the right to read bpffs.
    OSError: that is missing."""
    with _looked_up(interface, index) as found:
        if found is None:
            return Found()
        members = list(_members(found))
        numbers = tuple(int(lib.xdp_program__id(member)) for member in members if _name(member) == PROGRAM)
        dispatched = not lib.xdp_multiprog__is_legacy(found)
        number = int(lib.xdp_program__id(lib.xdp_multiprog__main_prog(found)))
        return Found(number, dispatched, tuple(_name(member) for member in members), numbers)


def refuse_others(interface: str, found: Found) -> None:
    """OSError EBUSY: there is a program next to which ours cannot be."""
    if not found.number or found.ours or (found.dispatched and found.names):
        return
    name = found.names[0] if found.names else DISPATCHER
    if name == DISPATCHER:
        raise OSError(
            errno.EBUSY,
            f"{interface} has libxdp's dispatcher for XDP programs, whose pins are not to be seen here: run this where "
            f"bpffs is (mount -t bpf bpf /sys/fs/bpf), or remove all of them (xdp-loader unload {interface} --all)",
        )
    raise OSError(
        errno.EBUSY,
        f"{interface} has the XDP program {name!r}: remove it (ip link set {interface} xdp off), or attach it through "
        f"libxdp, next to which ours can be (xdp-loader load {interface} FILE)",
    )


def join(interface: str, index: int, opened: Any, names: tuple[str, ...]) -> tuple[Any, int]:
    """Loads our object and attaches its program next to the others. Returns the struct xdp_program, which the caller
    closes, and the program's descriptor, which is the object's. OSError: why not."""
    lib.xts_bpf_catch_messages()
    joined = ffi.new("struct xdp_program **")
    with _nothing_left_open() as kept:
        result = int(lib.xts_bpf_join(index, opened, PRIORITY, joined))
        kept |= {result, *map(descriptor_of, programs(opened).values())}
    if result < 0:
        others = ", ".join(names)
        raise OSError(
            -result, f"attaching the XDP program to {interface} next to {others}: {os.strerror(-result)}{said()}"
        )
    return joined[0], result


def part(interface: str, index: int, number: int) -> bool:
    """Takes our program with this number out of the dispatcher. False: it is in none. OSError: as find()."""
    with _looked_up(interface, index) as found:
        if found is None or lib.xdp_multiprog__is_legacy(found):
            return False
        for member in _members(found):
            if int(lib.xdp_program__id(member)) == number:
                what = f"taking our XDP program away from those on {interface}"
                checked(lib.xts_bpf_part(index, member), what)
                return True
    return False
