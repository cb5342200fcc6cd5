"""The bystander's TCP peer: echoes what it gets, until its standard input ends. `python -m attack.echo ADDRESS PORT`"""

from __future__ import annotations

import selectors
import socket
import sys

from .scene import go_first


def main() -> int:
    address, port = sys.argv[1], int(sys.argv[2])
    go_first()
    with selectors.DefaultSelector() as selector, socket.create_server((address, port)) as listener:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return 0
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(connection, selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                if data := key.fileobj.recv(65536):
                    key.fileobj.sendall(data)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


if __name__ == "__main__":
    sys.exit(main())
