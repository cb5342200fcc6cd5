"""How long a call waits that has SO_RCVTIMEO or SO_SNDTIMEO, in seconds, where nothing comes. The call is the first of
its process that finds nothing."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable

HERE = os.environ["LISTEN_AT"]
TIME_S = 0.5
TIME = struct.pack("ll", int(TIME_S), int(TIME_S % 1 * 1e6))
MORE_THAN_FITS = bytes(64 << 20)


def waited(call: Callable[[], object]) -> float:
    """The first call that does nothing. A send may do a part, and then have room for another one."""
    while True:
        begun = time.monotonic()
        try:
            call()
        except BlockingIOError:
            return time.monotonic() - begun


def main() -> None:
    kind = sys.argv[1]
    if kind == "datagram":
        with socket.socket(type=socket.SOCK_DGRAM) as receiver:
            receiver.bind((HERE, 0))
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIME)
            print(waited(lambda: receiver.recv(1)))
        return
    with socket.create_server((HERE, 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIME)
        if kind == "accept":
            print(waited(listener.accept))
            return
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0]:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIME)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, TIME)
            if kind == "recv":
                print(waited(lambda: client.recv(1)))
            else:
                print(waited(lambda: client.send(MORE_THAN_FITS)))


if __name__ == "__main__":
    main()
