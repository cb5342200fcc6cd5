"""Attach tokens: statements of a host's agent that the proxy can verify (PROTOCOL.md, "Attach tokens").

On an interface the proxy sees frames but no processes. The agent sees processes, and states to whom a queue belongs:
user, cgroup, queue and epoch, authenticated with a key that only the agent and the proxy have. The process carries the
token to the proxy and cannot change it. dpu_proxy/native/channel/token.c checks it.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import stat
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from xts_messages.wire.wire_table import TOKEN_CGROUP_BYTES_MAX, TOKEN_CLAIMS

KEY_BYTES_MIN, KEY_BYTES_MAX = 32, 128
#: How long before and after its creation a token is valid, by the proxy's clock: so the clocks may differ by as much.
LIFETIME_S = 300
CONTEXT = b"xts attach token 1"
_FIXED = struct.Struct(">IIQQ")
_LENGTH = struct.Struct(">I")
_ORDER = struct.Struct(">QQ")


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
            raise OSError(errno.EACCES, f"{path} may be read by others: chmod 600, owned by root or by its reader")
        key = file.read(KEY_BYTES_MAX + 1)
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        expected = f"{KEY_BYTES_MIN} to {KEY_BYTES_MAX} random bytes (head -c 32 /dev/urandom)"
        raise OSError(
            errno.EINVAL, f"{path} has {len(key)}{'+' * (len(key) > KEY_BYTES_MAX)} bytes; expected {expected}"
        )
    return key


def make(
    key: bytes,
    host_mac: bytes,
    device_mac: bytes,
    *,
    queue_id: int,
    uid: int,
    cgroup: str,
    epoch: int,
    expires_ms: int,
    claims: Mapping[str, bytes] | None = None,
) -> bytes:
    """The token, as the payload of TOKEN. claims: values of TOKEN_CLAIMS by name."""
    payload = cut(cgroup.encode(errors="surrogateescape")) + _further(claims or {})
    fixed = _FIXED.pack(queue_id, uid, epoch, expires_ms)
    length = _LENGTH.pack(len(payload))
    mac = hmac.digest(key, CONTEXT + host_mac + device_mac + fixed + length + payload, "sha256")[:16]
    return fixed + mac + length + payload


def _further(claims: Mapping[str, bytes]) -> bytes:
    """What stands behind the cgroup. An older proxy takes it for a cgroup below that one, to which the same rules
    apply."""
    found = b""
    for name, value in claims.items():
        number, size, _ = TOKEN_CLAIMS[name]
        assert len(value) == size, name
        found += bytes([number, size]) + value
    return b"/\0" + found if found else b""


class Issuer:
    """Makes the tokens of one life of an agent: each is newer than the one before, whatever the clock does."""

    def __init__(self, key: bytes, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """now_ms: the wall clock."""
        self._key, self._now_ms = key, now_ms
        self._life = secrets.randbits(64) or 1
        self._made = 0
        self._last_expiry_ms = 0

    def token(
        self, host_mac: bytes, device_mac: bytes, *, queue_id: int, uid: int, cgroup: str, epoch: int, **claims: bytes
    ) -> bytes:
        """A token from now on; `claims` as for make()."""
        self._made += 1
        return make(
            self._key,
            host_mac,
            device_mac,
            queue_id=queue_id,
            uid=uid,
            cgroup=cgroup,
            epoch=epoch,
            expires_ms=self._expiry_ms(),
            claims={"ORDER": _ORDER.pack(self._life, self._made)} | claims,
        )

    def _expiry_ms(self) -> int:
        """An older proxy goes by the time, and takes no two tokens of one millisecond. If the last expiry is a second
        or more ahead, the clock was set back: then the last one means nothing."""
        expires_ms = self._now_ms() + LIFETIME_S * 1000
        if 0 <= self._last_expiry_ms - expires_ms < 1000:
            expires_ms = self._last_expiry_ms + 1
        self._last_expiry_ms = expires_ms
        return expires_ms


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
