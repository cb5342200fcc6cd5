"""Where metrics are served: a Unix socket, an address and port, or nowhere."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from xts_messages.services.served_sockets import in_use, server_of
from xts_messages.services.service_manager import passed
from xts_messages.services.unix_listener import listen_at


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """`str()` of it can be parsed again."""

    expected: ClassVar[str] = '"unix:/path", an address and port such as "127.0.0.1:9464" or "[::]:9464", or "off"'
    unix_path: str | None = None
    host: str | None = None
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """ValueError says what is wrong."""
        if text == "off":
            return cls()
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path.startswith("/"):
                raise ValueError("the path of the socket must be absolute")
            if len(path.encode()) > 107 or "\0" in path:
                raise ValueError("the path of a socket has 107 bytes at most, and none of them is 0")
            return cls(unix_path=path)
        match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):(\d{1,5})", text, re.ASCII)
        if not match or int(match[3]) > 65535:
            raise ValueError("this is no address and port")
        address = ipaddress.ip_address(match[1] or match[2])
        return cls(host=str(address), port=int(match[3]))

    def __str__(self) -> str:
        if self.unix_path is not None:
            return f"unix:{self.unix_path}"
        if self.host is None:
            return "off"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __bool__(self) -> bool:
        """Are metrics served at all?"""
        return self.unix_path is not None or self.host is not None

    @property
    def is_remote(self) -> bool:
        """Can other machines connect?"""
        return self.host is not None and not ipaddress.ip_address(self.host).is_loopback

    def listen(self) -> socket.socket:
        """A listening socket: systemd's for this address and port, or a new one. OSError says what failed."""
        if self.unix_path is not None:
            return listen_unix(self.unix_path, 0o666)
        assert self.host is not None
        if listener := passed().listener((self.host, self.port), socket.SOCK_STREAM):
            return listener
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise OSError(error.errno, f"metrics at {self}: {error.strerror}") from error


def listen_unix(path: str, mode: int) -> socket.socket:
    """A listening stream socket at path. A file left by a dead process is replaced. OSError EADDRINUSE: a live process
    serves it; ENOTSOCK: it is something else."""
    target = Path(path)
    if listener := passed().listener(path, socket.SOCK_STREAM):
        return listener
    if target.is_symlink() or target.exists():
        if not stat.S_ISSOCK(target.lstat().st_mode):
            raise OSError(errno.ENOTSOCK, f"{path} exists and is not a socket: remove it or choose another path")
        if server := server_of(path, socket.SOCK_STREAM):
            raise in_use(path, server)
    if not target.parent.is_dir():
        raise OSError(errno.ENOENT, f"{path}: there is no directory {target.parent}: make it, or choose another path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listen_at(listener, target, mode, 16)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
    return listener
