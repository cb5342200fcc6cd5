"""A server whose TLS is the proxy's, and which answers a request as `openssl s_server -www` does, when all of it is
there: with a page, and then its end. page_server.py: prints its port, then serves until its input ends."""

from __future__ import annotations

import sys
import threading

import xts_socket
from xts_socket import Tls

PAGE = b"HTTP/1.0 200 ok\r\nContent-type: text/html\r\n\r\n<HTML><BODY>a page</BODY></HTML>\r\n\r\n"


def answer(sock: xts_socket.socket) -> None:
    with sock:
        sock.settimeout(20)
        asked = b""
        try:
            while b"\n\n" not in asked.replace(b"\r", b""):
                part = sock.recv(16384)
                if not part:
                    return
                asked = asked[-8:] + part
            sock.sendall(PAGE)
        except OSError:
            return


def main() -> None:
    listener = xts_socket.create_server(("127.0.0.1", 0), backlog=100, tls=Tls(identity="own"))

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                continue
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
