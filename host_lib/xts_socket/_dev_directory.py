"""Where the sockets of a proxy of one's own are (_dev_proxy.py).

Theory of operation. The proxy makes two directories, one in the other: `PLACE/xts-dev-NAME/SECRET`, and removes them at
its end. They are only this user's. Root's programs may give up root, and have to reach the proxy all the same: so
root's directories may be entered by everybody, and listed by nobody else. Then SECRET, of 128 bits, is what lets a
process in: those have it that inherit XTS_ENDPOINT. So it must be in no command line, no log, and no name given to
bind() (xts_messages.services.unix_listener).

If a proxy is killed together with the program that started it, its directory is left; the next proxy to start removes
it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from xts_messages.services.unix_listener import PATH_BYTES_MAX

_PREFIX = "xts-dev-"
_ENDPOINT = "endpoint.sock"
#: A directory without a socket is left alone for so long: its proxy may be starting.
_NEW_S = 30.0


def new_directory() -> Path:
    """SECRET's path; neither it nor its parent exists yet. OSError: there is no place for it."""
    name, secret = f"{_PREFIX}{secrets.token_hex(8)}", secrets.token_urlsafe(16)
    found, tried = [], []
    for place in _places():
        path = place.absolute() / name / secret
        if len(os.fsencode(path / _ENDPOINT)) > PATH_BYTES_MAX or any(char in str(path) for char in '"\\\n'):
            tried.append(f"{place} (its name does not fit a Unix socket)")
        elif not os.access(place, os.W_OK | os.X_OK):
            tried.append(f"{place} (not to be written to)")
        else:
            found.append((place, path))
    if not found:
        where = ", ".join(tried)
        raise OSError(errno.EACCES, f"no directory for the proxy's sockets: tried {where}; TMPDIR can name one")
    place, path = found[0]
    if os.geteuid() == 0:
        place, path = next((one for one in found if _all_may_enter(one[0])), found[0])
    _remove_stale(place)
    return path


def _places() -> Iterator[Path]:
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime)
    with suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir())
    yield Path("/tmp")


def _all_may_enter(place: Path) -> bool:
    """May every user go through this directory and those above it?"""
    real = place.resolve()
    return all(directory.stat().st_mode & stat.S_IXOTH for directory in (real, *real.parents))


def _remove_stale(place: Path) -> None:
    """Removes directories of proxies that were killed together with the process that started them."""
    for path in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_stale(path, status.st_mtime):
                shutil.rmtree(path, ignore_errors=True)


def _is_stale(path: Path, changed_at: float) -> bool:
    """True: no process listens there, and none is about to."""
    endpoints = list(path.rglob(_ENDPOINT))
    if not endpoints:
        return time.time() - changed_at > _NEW_S
    return not any(_may_be_served(endpoint) for endpoint in endpoints)


def _may_be_served(endpoint: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(endpoint))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True
