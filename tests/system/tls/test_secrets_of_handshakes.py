"""Traffic secrets of TLS, which the proxy takes out of OpenSSL, are in nothing that it shows. (What a host pushes:
tests/system/operate/test_secrets_stay.py.)"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import xts_socket
from beds.authority import Authority
from beds.proxy_process import ProxyProcess
from beds.ulp_tls import server_context
from xts_proxy.status import control_socket
from xts_socket import Tls

LABELS = ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0")
MARKER = b"WAITS-IN-A-READ"


def secrets_of(log: Path) -> dict[str, bytes]:
    """From the key log that OpenSSL writes."""
    lines = [line.split() for line in log.read_text().splitlines() if not line.startswith("#")]
    return {label: bytes.fromhex(secret) for label, _, secret in lines if label in LABELS}


def test_no_secret_is_shown(xts_endpoint: ProxyProcess, xts_authority: Authority, tmp_path: Path) -> None:
    context, key_log = server_context(xts_authority.issue("localhost", "127.0.0.1")), tmp_path / "keys"
    context.keylog_filename = str(key_log)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with context.wrap_socket(server.accept()[0], server_side=True) as peer:
                peer.sendall(MARKER * 8)
                peer.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        tls = Tls(server_hostname="localhost")
        with xts_socket.create_connection(server.getsockname(), tls=tls) as client:
            assert client.recv(1) == MARKER[:1]
            assert client.tls.version() == "TLSv1.3"
            status = control_socket.ask(xts_endpoint.control, control_socket.Question(ask="status", connections=True))
            environment = Path(f"/proc/{xts_endpoint.workers_pid}/environ").read_bytes()
            shown = str(status).encode() + xts_endpoint.log.read_bytes() + environment
            assert b"tls" in shown, "status shows this connection"
            client.sendall(b"x")
        thread.join()
    found = secrets_of(key_log)
    assert set(found) == set(LABELS)
    for secret in found.values():
        for form in (secret, secret.hex().encode(), secret[:8].hex().encode(), secret.hex(" ").encode()):
            assert form not in shown
    assert MARKER not in shown
