"""Attach tokens: statements of a host's agent that the proxy can verify (PROTOCOL.md, "Attach tokens").

On an interface the proxy sees frames but no processes. The agent sees processes, and states to whom a queue belongs:
user, cgroup, queue and epoch, authenticated with a key that only the agent and the proxy have. The process carries the
token to the proxy and cannot change it. dpu_proxy/native/channel/token.c checks it.
"""

from __future__ import annotations

import errno
import hmac
import os
import stat
import struct
from pathlib import Path

from xts_messages.wire_table import TOKEN_CGROUP_BYTES_MAX

KEY_BYTES_MIN, KEY_BYTES_MAX = 32, 128
#: How long before and after its creation a token is valid, by the proxy's clock: so the clocks may differ by as much.
LIFETIME_S = 300
CONTEXT = b"xts attach token 1"
_CLAIMS = struct.Struct(">IIQQ")
_LENGTH = struct.Struct(">I")


def load_key(path: str) -> bytes:
    """The key in a file that only its owner may read. OSError says why it cannot be used."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        error.strerror = f"{path}: {error.strerror}"  # callers show only this text
        raise
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, f"{path} is no file")
        if found.st_mode & 0o077 or found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EACCES, f"{path} may be read by others: chmod 600, owned by root or by who reads it")
        key = file.read(KEY_BYTES_MAX + 1)
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        expected = f"{KEY_BYTES_MIN} to {KEY_BYTES_MAX} random bytes (head -c 32 /dev/urandom)"
        raise OSError(
            errno.EINVAL, f"{path} has {len(key)}{'+' * (len(key) > KEY_BYTES_MAX)} bytes; expected {expected}"
        )
    return key


def make(
    key: bytes, host_mac: bytes, device_mac: bytes, *, queue_id: int, uid: int, cgroup: str, epoch: int, expires_ms: int
) -> bytes:
    """The token, as the payload of TOKEN."""
    path = cut(cgroup.encode(errors="surrogateescape"))
    claims = _CLAIMS.pack(queue_id, uid, epoch, expires_ms)
    length = _LENGTH.pack(len(path))
    mac = hmac.digest(key, CONTEXT + host_mac + device_mac + claims + length + path, "sha256")[:16]
    return claims + mac + length + path


def cut(cgroup: bytes) -> bytes:
    """As much of the path as fits, in whole components: a truncated path still names a cgroup that contains the
    process."""
    if len(cgroup) <= TOKEN_CGROUP_BYTES_MAX:
        return cgroup
    return cgroup[: cgroup.rfind(b"/", 0, TOKEN_CGROUP_BYTES_MAX + 1)]


def cgroup_of(pid: int) -> str:
    """The cgroup of a process (version 2), such as "/user.slice/user-1000.slice"; "" when it is not known."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return next((line[3:] for line in text.split("\n") if line.startswith("0::")), "")
