"""As on a kernel that has no memfd_secret(2): keys are in memory that root can read.

python -m beds.without_memfd_secret PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

from beds.classic_bpf import Program, instruction

#: In place of running(..., under=...): what is run is run so.
UNDER = ("env", f"PYTHONPATH={Path(__file__).parent.parent}", sys.executable, "-m", "beds.without_memfd_secret")
_MEMFD_SECRET = 447  # the same number everywhere
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LD_W_ABS, _JEQ, _RET = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def without_memfd_secret() -> None:
    """This process, and those that it becomes."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = instruction(_LD_W_ABS, 0) + instruction(_JEQ, _MEMFD_SECRET, 0, 1)
    program = Program(code + instruction(_RET, _ERROR | errno.ENOSYS) + instruction(_RET, _ALLOW))
    assert libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(_SECCOMP, _FILTER, program.raw) == 0, os.strerror(ctypes.get_errno())


if __name__ == "__main__":
    without_memfd_secret()
    os.execvp(sys.argv[1], sys.argv[1:])
