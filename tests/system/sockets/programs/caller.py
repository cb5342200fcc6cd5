"""Makes the calls that its standard input asks for, one JSON line each, and prints what they came to."""

from __future__ import annotations

import ctypes
import errno
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beds.calls import Calls, address
from beds.ulp_calls import ULP_CALLS
from system.sockets.programs.library_scripts import Info


def malformed(c: Calls) -> int:
    info = Info(ctypes.sizeof(Info))
    c.call("get_info", ctypes.byref(info))
    return int(info.malformed)


def recv(c: Calls, s: int, size: int) -> int | str:
    """Data in hex, or minus errno."""
    buffer = ctypes.create_string_buffer(size)
    r = c.call("recv", s, buffer, size, 0)
    return r if r < 0 else buffer.raw[:r].hex()


def last_error(c: Calls) -> str:
    function = c.native.xts_last_error
    function.restype = ctypes.c_char_p
    return str(function().decode())


CALLS: dict[str, Callable[..., Any]] = {
    "socket": lambda c: c.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0),
    "connect": lambda c, s: c.call("connect", s, address(80), 16),
    "bind": lambda c, s: c.call("bind", s, address(0), 16),
    "accept": lambda c, s: c.call("accept", s, None, None),
    "send": lambda c, s, size: c.call("send", s, bytes(size), size, socket.MSG_NOSIGNAL),
    "nodelay": lambda c, s: c.call("setsockopt", s, socket.IPPROTO_TCP, socket.TCP_NODELAY, b"\1\0\0\0", 4),
    "outq": lambda c, s: c.call("ioctl", s, 0x5411, ctypes.create_string_buffer(4)),
    "malformed": malformed,
    "last_error": last_error,
    "recv": recv,
    "descriptors": lambda _: len(list(Path("/proc/self/fd").iterdir())),
    **ULP_CALLS,
}


def main() -> None:
    c = Calls(sys.argv[1])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        r = CALLS[name](c, *arguments) if name in CALLS else c.call(name, *arguments)
        print(json.dumps(errno.errorcode[-r] if isinstance(r, int) and r < 0 else r), flush=True)


if __name__ == "__main__":
    main()
