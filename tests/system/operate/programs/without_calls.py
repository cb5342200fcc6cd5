"""Runs a program on a kernel that does not have some system calls: `without_calls.py NAME[,NAME…] PROGRAM [ARG…]`.

A seccomp filter answers ENOSYS for them, as an old kernel would. `AF_XDP` stands for sockets of that family, which are
answered with EAFNOSUPPORT.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

#: name -> number on x86_64, on aarch64
CALLS = {
    "memfd_create": (319, 279),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "seccomp": (317, 277),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "landlock_create_ruleset": (444, 444),
}
_SOCKET = (41, 198)
_AF_XDP = 44
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


def _statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(names: list[str], machine: int) -> bytes:
    """The filter. `machine`: which column of the table."""
    out = _statement(_LOAD, _NUMBER_AT)
    for name in names:
        if name == "AF_XDP":
            continue
        out += _statement(_JUMP_EQUAL, CALLS[name][machine], 0, 1) + _statement(_RETURN, _ERRNO | errno.ENOSYS)
    if "AF_XDP" in names:
        out += _statement(_JUMP_EQUAL, _SOCKET[machine], 0, 3) + _statement(_LOAD, _FIRST_ARGUMENT_AT)
        out += _statement(_JUMP_EQUAL, _AF_XDP, 0, 1) + _statement(_RETURN, _ERRNO | errno.EAFNOSUPPORT)
    return out + _statement(_RETURN, _ALLOW)


def main() -> None:
    names, *command = sys.argv[1:]
    code = program(names.split(","), ("x86_64", "aarch64").index(platform.machine()))
    libc = ctypes.CDLL(None, use_errno=True)
    text = ctypes.create_string_buffer(code)
    fprog = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(text))
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, fprog, 0, 0)):
        if libc.prctl(*arguments):
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
