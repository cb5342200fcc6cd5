"""STARTTLS by peek mode: the connection begins in clear, TLS in the proxy takes over at the byte the protocol says.

    starttls_client.py postgresql PORT     SSLRequest, then a session of messages; prints what SELECT 6 * 7 gives
    starttls_client.py smtp PORT           STARTTLS, then EHLO again; prints the server's extensions over TLS

Prints one line of JSON. The proxy trusts the server by the roots "test".
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any

import xts_socket
from xts_socket import Lines, StreamParser, Tls

TLS = Tls(server_hostname="localhost", ca="test")


def postgresql(port: int) -> dict[str, Any]:
    """The messages of PostgreSQL's protocol (its manual, "Message Formats"): type, length that counts itself."""
    with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(20)
        sock.peek_mode()
        sock.connect(("127.0.0.1", port))
        sock.sendall(struct.pack("!II", 8, 80877103))  # SSLRequest
        clear = sock.recv(1)
        if clear != b"S":
            raise SystemExit(f"the server will not have TLS: {clear!r}")
        sock.push(TLS)
        sock.push(StreamParser(offset=1, width=4, adjustment=1), direction="receive")
        sock.end_peek_mode(1)
        parameters = b"user\0test\0database\0postgres\0\0"
        sock.sendall(struct.pack("!II", 8 + len(parameters), 196608) + parameters)
        while not (message := next_message(sock)).startswith(b"Z"):  # ReadyForQuery
            pass
        query = b"SELECT 6 * 7, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()\0"
        sock.sendall(b"Q" + struct.pack("!I", 4 + len(query)) + query)
        rows = []
        while not (message := next_message(sock)).startswith(b"Z"):
            if message[:1] == b"D":
                rows.append(columns(message))
        assert sock.tls is not None
        return {"rows": rows, "version": sock.tls.version()}


def next_message(sock: xts_socket.socket) -> bytes:
    pdu = sock.recv_pdu()
    if pdu is None or pdu.data[:1] == b"E":
        raise SystemExit(f"PostgreSQL: {pdu}")
    return pdu.data


def columns(message: bytes) -> list[str]:
    found, at = [], 7
    for _ in range(struct.unpack_from("!H", message, 5)[0]):
        (size,) = struct.unpack_from("!i", message, at)
        found.append(message[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return found


def smtp(port: int) -> dict[str, Any]:
    """RFC 3207. What a man in the middle adds behind the answer to STARTTLS is not dropped: TLS reads it, and fails."""
    with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(20)
        sock.peek_mode()
        sock.connect(("127.0.0.1", port))
        seen, stream = b"", b""
        for command in (None, b"EHLO test\r\n", b"STARTTLS\r\n"):
            if command:
                sock.sendall(command)
            stream = b""
            while not stream.endswith(b"\r\n") or stream.splitlines()[-1][3:4] == b"-":
                stream += sock.recv(4096)
            seen += stream
        if not stream.startswith(b"220"):
            raise SystemExit(f"STARTTLS: {stream!r}")
        sock.push(TLS, Lines(delimiter=b"\r\n"))
        sock.end_peek_mode(len(seen))
        sock.send_pdu(b"EHLO test")
        lines = []
        while not lines or lines[-1][3] == "-":
            pdu = sock.recv_pdu()
            if pdu is None:
                raise SystemExit("the server has closed")
            lines.append(pdu.data.decode())
        assert sock.tls is not None
        return {"lines": lines, "version": sock.tls.version(), "clear": seen.decode()}


if __name__ == "__main__":
    run = {"postgresql": postgresql, "smtp": smtp}[sys.argv[1]]
    print(json.dumps(run(int(sys.argv[2]))))
