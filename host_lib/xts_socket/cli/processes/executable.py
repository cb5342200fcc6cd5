"""Checks, before a program is started, what the interposer can do for it.

The loader of the C library preloads libxts-preload.so. So these programs keep kernel sockets: one without the loader
(statically linked), one for which the loader ignores LD_PRELOAD (set-uid, file capabilities), one of another
architecture or C library, and one that makes its system calls itself (Go). The ELF headers show which kind it is.
Programs that would not work with offloaded sockets are known by name.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...native import FOLDER, ffi, lib

_PT_INTERP, _PT_NOTE = 3, 4
_GO_BUILD_ID = 4  # note type, of owner "Go"
_SCRIPTS_MAX = 5  # limit for interpreters that are scripts themselves; the kernel's
_SEGMENT_BYTES_MAX = 65536


def _sandbox(path: str) -> str | None:
    """Why a program is started without the interposer; None: it is started with it."""
    why = lib.xts_sandboxed(Path(path).name.encode())
    return ffi.string(why).decode() if why else None


@dataclass(frozen=True, slots=True)
class Elf:
    """What the headers of an executable say."""

    bits: int
    little_endian: bool
    machine: int  # e_machine
    loader: str | None  # PT_INTERP; None: statically linked, or a loader itself
    go: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A program to be started."""

    path: str
    runs: str  # the executable that runs in the end: for a script, its interpreter
    obstacle: str | None  # why all its sockets will stay with the kernel; None: they can be offloaded
    sandboxed: bool = False  # it fails with the interposer


def find(name: str) -> str:
    """The file that execvp(3) would start. Raises FileNotFoundError, PermissionError."""
    if "/" in name:
        path = name
    else:
        found = shutil.which(name) or shutil.which(name, mode=os.F_OK)
        if not found:
            raise FileNotFoundError(f"{name}: not found in PATH")
        path = found
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: no such file")
    if Path(path).is_dir() or not os.access(path, os.X_OK):
        raise PermissionError(f"{path}: not executable")
    return path


def look_at(path: str) -> Program:
    """Looks at a program's file, and for a script at that of its interpreter. Raises OSError if it cannot be started;
    for a file that may be started but not read, no obstacle is reported."""
    runs = path
    for _ in range(_SCRIPTS_MAX + 1):
        try:
            with Path(runs).open("rb") as file:
                head = file.read(256)
                if not head.startswith(b"#!"):
                    obstacle, sandbox = _obstacle(runs, file, head), _sandbox(runs)
                    return Program(path, runs, obstacle or sandbox, sandbox is not None)
        except PermissionError:
            return Program(path, runs, None)
        runs = _interpreter(runs, head)
    raise OSError(f"{path}: a script whose interpreters are scripts, more than {_SCRIPTS_MAX} deep")


def _interpreter(script: str, head: bytes) -> str:
    """The interpreter of the #! line; for env(1), the program that it starts."""
    words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
    if not words:
        raise OSError(f"{script}: no interpreter after #!")
    if Path(words[0]).name == "env":
        for word in words[1:]:
            if not word.startswith("-") and "=" not in word:
                return find(word)
    return find(words[0] if "/" in words[0] else f"./{words[0]}")


def _obstacle(path: str, file: BinaryIO, head: bytes) -> str | None:
    if not head.startswith(b"\x7fELF"):
        raise OSError(f"{path}: neither an ELF executable nor a script with #!")
    elf = read_elf(file)
    with Path("/proc/self/exe").open("rb") as own_file:
        own = read_elf(own_file)
    if (elf.bits, elf.little_endian, elf.machine) != (own.bits, own.little_endian, own.machine):
        kind = "a 32-bit program" if elf.bits < own.bits else "of another architecture"
        return f"is {kind}, and libxts-preload.so is not"
    if elf.go:
        return "is a Go program, which makes its system calls itself, past the C library"
    if elf.loader is None and not Path(path).name.startswith("ld-"):
        return "is statically linked, so that nothing can be preloaded"
    if elf.loader and own.loader and not _same_file(elf.loader, own.loader):
        return f"is loaded by {elf.loader}, which cannot load libxts-preload.so (that is for {own.loader})"
    return _privilege(path, file)


def _same_file(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _privilege(path: str, file: BinaryIO) -> str | None:
    """If a program gains privilege when it is started, the loader ignores LD_PRELOAD."""
    status = os.fstat(file.fileno())
    ignored = "so the loader ignores LD_PRELOAD"
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return f"is set-uid, {ignored}"
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != os.getgid():
        return f"is set-gid, {ignored}"
    try:
        capable = bool(os.getxattr(path, "security.capability"))
    except OSError:
        capable = False
    if capable and os.getuid():
        return f"has file capabilities, {ignored}"
    return None


# --- ELF -----------------------------------------------------------------------------------------------------------


def read_elf(file: BinaryIO) -> Elf:
    """The headers of an ELF executable. Raises OSError if they are invalid."""
    file.seek(0)
    ident = file.read(16)
    if len(ident) < 16 or not ident.startswith(b"\x7fELF") or ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise OSError(f"{file.name}: not an ELF executable")
    order = "<" if ident[5] == 1 else ">"
    wide = ident[4] == 2
    try:
        # e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize, e_phnum
        header = struct.Struct(order + ("HHIQQQIHHH" if wide else "HHIIIIIHHH"))
        _, machine, _, _, table, _, _, _, entry_bytes, count = header.unpack(file.read(header.size))
        # p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz; of 32 bits without p_flags
        entry = struct.Struct(order + ("IIQQQQ" if wide else "IIIII"))
        entries = [_unpack(file, entry, table + n * entry_bytes) for n in range(count)]
        segments = [(fields[0], fields[2 if wide else 1], fields[-1]) for fields in entries]
        loader = next((_content(file, *place) for kind, *place in segments if kind == _PT_INTERP), None)
        notes = [_content(file, *place) for kind, *place in segments if kind == _PT_NOTE]
    except (struct.error, ValueError):  # ValueError: an offset that no file has
        raise OSError(f"{file.name}: an ELF executable that is damaged or cut short") from None
    return Elf(
        bits=64 if wide else 32,
        little_endian=order == "<",
        machine=machine,
        loader=os.fsdecode(loader.rstrip(b"\0")) if loader else None,
        go=any(_has_go_note(note, order) for note in notes),
    )


def _unpack(file: BinaryIO, entry: struct.Struct, offset: int) -> tuple[int, ...]:
    file.seek(offset)
    return entry.unpack(file.read(entry.size))


def _content(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(min(size, _SEGMENT_BYTES_MAX))


def _has_go_note(notes: bytes, order: str) -> bool:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, content_bytes, kind = struct.unpack_from(order + "III", notes, at)
        if kind == _GO_BUILD_ID and notes[at + 12 : at + 12 + name_bytes].rstrip(b"\0") == b"Go":
            return True
        at += 12 + (name_bytes + 3 & ~3) + (content_bytes + 3 & ~3)
    return False


def preload_library() -> Path:
    """The place of libxts-preload.so: next to libxts.so."""
    return FOLDER / "libxts-preload.so"


def preload_value(environment: Mapping[str, str], library: str) -> str:
    """LD_PRELOAD with the library appended. Libraries that are there already stay before it: they get the program's
    calls first, and call ours. Raises OSError for a path that LD_PRELOAD cannot contain."""
    if any(char in library for char in " :\t\n"):
        raise OSError(f"{library}: LD_PRELOAD takes no path with blanks or colons in it")
    present = environment.get("LD_PRELOAD", "")
    if library in present.replace(":", " ").split():
        return present
    return f"{present}:{library}" if present else library
