"""Object files with BPF programs: opening them by libbpf, and what is in one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from xts_bpf import _native

ffi, lib = _native.ffi, _native.lib
#: Of what libbpf, and through it the kernel's verifier, has printed: the end has the reason.
_SAID_MAX = 400


def said() -> str:
    """What libbpf has printed since the object was opened, in parentheses behind a space; "": nothing."""
    printed = " ".join(ffi.string(lib.xts_bpf_messages()).decode(errors="replace").split())
    return f" ({printed[-_SAID_MAX:]})" if printed else ""


def checked(result: int, what: str) -> int:
    """The result of a call of libbpf. OSError, with what it has printed: it is negative."""
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}{said()}")
    return int(result)


def open_object(path: Path, what: str) -> Any:
    """The object of a file, which the caller closes (bpf_object__close). OSError: `what` did not work."""
    lib.xts_bpf_catch_messages()
    opened = lib.bpf_object__open_file(os.fsencode(path), ffi.NULL)
    if opened == ffi.NULL:
        checked(-int(ffi.errno), what)
    return opened


def programs(opened: Any) -> dict[str, Any]:
    """The programs of an object by their names. They, and their descriptors, are the object's."""
    found = {}
    program = lib.bpf_object__next_program(opened, ffi.NULL)
    while program != ffi.NULL:
        found[ffi.string(lib.bpf_program__name(program)).decode()] = program
        program = lib.bpf_object__next_program(opened, program)
    return found


def descriptor_of(program: Any) -> int:
    """Of a program that is loaded."""
    return int(lib.bpf_program__fd(program))


def map_of(opened: Any, name: str) -> int:
    """The descriptor of a map, by its name, which is the object's. OSError: it has none."""
    return checked(int(lib.bpf_object__find_map_fd_by_name(opened, name.encode())), f"map {name}")
