"""A Unix socket that listens at a path.

Theory of operation. It is bound under a temporary name, gets its mode, listens, and is then renamed: so it appears
ready or not at all. Every user may read the names that bind() was given (/proc/net/unix, `ss -xl`), and a path may have
parts that are a secret, such as those of `xts dev`. So bind() gets the folder as a descriptor, and only the last part
of the path as a name.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

PATH_BYTES_MAX = 107  # sockaddr_un, without the zero at its end


def listen_at(listener: socket.socket, path: Path, mode: int, backlog: int) -> None:
    """Binds the socket, which listens at `path` then and can be reached by those who `mode` says; a file that is there
    is replaced. OSError: it is as before."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, f"the path of a Unix socket has at most {PATH_BYTES_MAX} bytes")
    temporary = f".{path.name}.{os.getpid()}"
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        listener.bind(f"/proc/self/fd/{folder}/{temporary}")
        try:
            os.chmod(temporary, mode, dir_fd=folder)
            listener.listen(backlog)
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(folder)
