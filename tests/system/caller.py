"""Makes the calls that its standard input asks for, one JSON line each, and prints what they came to."""

from __future__ import annotations

import ctypes
import errno
import json
import socket
import sys
from pathlib import Path

from call_scripts import Calls, address
from library_scripts import Info
from ulp_calls import ULP_CALLS


def main() -> None:
    c = Calls(sys.argv[1])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        if name == "socket":
            r = c.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
        elif name == "connect":
            r = c.call("connect", arguments[0], address(80), 16)
        elif name == "bind":
            r = c.call("bind", arguments[0], address(0), 16)
        elif name == "accept":
            r = c.call("accept", arguments[0], None, None)
        elif name == "send":
            r = c.call("send", arguments[0], bytes(arguments[1]), arguments[1], socket.MSG_NOSIGNAL)
        elif name == "nodelay":
            r = c.call("setsockopt", arguments[0], socket.IPPROTO_TCP, socket.TCP_NODELAY, b"\1\0\0\0", 4)
        elif name == "malformed":
            c.call("get_info", ctypes.byref(info := Info(ctypes.sizeof(Info))))
            r = int(info.malformed)
        elif name == "recv":
            buffer = ctypes.create_string_buffer(arguments[1])
            r = c.call("recv", arguments[0], buffer, arguments[1], 0)
            if r >= 0:
                print(json.dumps(buffer.raw[:r].hex()), flush=True)
                continue
        elif name in ULP_CALLS:
            r = ULP_CALLS[name](c, *arguments)
            if not isinstance(r, int):
                print(json.dumps(r), flush=True)
                continue
        elif name == "descriptors":
            r = len(list(Path("/proc/self/fd").iterdir()))
        else:
            r = c.call(name, *arguments)
        print(json.dumps(errno.errorcode[-r] if r < 0 else r), flush=True)


if __name__ == "__main__":
    main()
