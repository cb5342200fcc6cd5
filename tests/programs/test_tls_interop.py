"""TLS of the proxy against the TLS of others, each way: OpenSSL, GnuTLS, nginx, curl, Node, Python's ssl.

On loopback through a proxy over shared memory; every body is compared by its hash.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest
from beds.authority import Certificate, certificate_for_localhost
from beds.proxy_process import running_proxy
from xts_lab.free_ports import free_port
from xts_proxy.status import control_socket

END = Path(__file__).with_name("programs") / "tls_end.py"
BODY = bytes(range(256)) * 4096
HASH = hashlib.sha256(BODY).hexdigest()
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Bed:
    certificate: Certificate
    folder: Path
    endpoint: str
    control: str

    def tickets_late(self) -> int:
        return int(control_socket.ask(self.control, control_socket.Question("status"))["tls"]["tickets_late"])

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XTS_ENDPOINT": self.endpoint}

    def fetch(self, port: int, how: str = "fetch") -> dict[str, Any]:
        """By our end, TLS in the proxy."""
        run = subprocess.run(
            [sys.executable, str(END), how, str(port)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        told: dict[str, Any] = json.loads(run.stdout)
        return told


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("interop")
    made = certificate_for_localhost(folder)
    made.key.chmod(0o600)
    (folder / "body").write_bytes(BODY)
    tables = (
        f'[[tls.identity]]\nname = "test"\ncertificate = "{made.certificate}"\nkey = "{made.key}"\n'
        f'[[tls.trust]]\nname = "test"\nfile = "{made.certificate}"\n'
    )
    with running_proxy(folder, tables) as proxy:
        yield Bed(made, folder, proxy.endpoint, proxy.control)


def need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


@contextmanager
def started(command: Sequence[str], port: int, folder: Path, **options: Any) -> Iterator[None]:
    """A server of others, until it accepts."""
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, **options)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with suppress(OSError), create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} does not serve:\n{(folder / 'server.log').read_text()}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=10)


# --- their servers, our client ----------------------------------------------------------------------------------------


def openssl_server(bed: Bed, port: int, *more: str) -> list[str]:
    files = ("-cert", str(bed.certificate.certificate), "-key", str(bed.certificate.key))
    return [need("openssl"), "s_server", "-accept", str(port), *files, "-WWW", "-quiet", *more]


def gnutls_server(bed: Bed, port: int, *more: str) -> list[str]:
    files = ("--x509certfile", str(bed.certificate.certificate), "--x509keyfile", str(bed.certificate.key))
    return [need("gnutls-serv"), "--http", "--port", str(port), *files, *more]


def nginx_server(bed: Bed, port: int, *more: str) -> list[str]:
    need("nginx")
    config = bed.folder / "nginx.conf"
    config.write_text(f"""
daemon off; master_process off; pid {bed.folder}/nginx.pid; error_log stderr error; user root;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {bed.folder}; proxy_temp_path {bed.folder}; fastcgi_temp_path {bed.folder};
    uwsgi_temp_path {bed.folder}; scgi_temp_path {bed.folder};
    server {{
        listen 127.0.0.1:{port} ssl; root {bed.folder};
        ssl_certificate {bed.certificate.certificate}; ssl_certificate_key {bed.certificate.key};
        ssl_protocols {" ".join(more) or "TLSv1.2 TLSv1.3"};
    }}
}}
""")
    return ["nginx", "-e", "stderr", "-p", str(bed.folder), "-c", str(config)]


_NODE = """
const https = require('https'), fs = require('fs');
https.createServer({cert: fs.readFileSync(process.argv[2]), key: fs.readFileSync(process.argv[3])},
  (request, response) => {
    const body = fs.readFileSync(process.argv[4]);
    response.writeHead(200, {'Content-Length': body.length}).end(body);
  }).listen(+process.argv[5], '127.0.0.1');
"""


def node_server(bed: Bed, port: int, *more: str) -> list[str]:
    script = bed.folder / "server.js"
    script.write_text(_NODE)
    certificate = bed.certificate
    return [
        need("node"),
        *more,
        str(script),
        *map(str, (certificate.certificate, certificate.key, bed.folder / "body", port)),
    ]


SERVERS = {
    "openssl-1.3": (openssl_server, ("-tls1_3",), "TLSv1.3"),
    "openssl-1.2": (openssl_server, ("-tls1_2",), "TLSv1.2"),
    "openssl-1.2-chacha": (openssl_server, ("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"), "TLSv1.2"),
    "nginx-1.3": (nginx_server, ("TLSv1.3",), "TLSv1.3"),
    "nginx-1.2": (nginx_server, ("TLSv1.2",), "TLSv1.2"),
    "node-1.3": (node_server, (), "TLSv1.3"),
    "node-1.2": (node_server, ("--tls-max-v1.2",), "TLSv1.2"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_others_serves_the_proxys_client(bed: Bed, name: str) -> None:
    make, more, version = SERVERS[name]
    port = free_port()
    with started(make(bed, port, *more), port, bed.folder):
        told = bed.fetch(port)
    assert (told["version"], told["bytes"], told["sha256"]) == (version, len(BODY), HASH)


@pytest.mark.parametrize(("priority", "version"), [("NORMAL", "TLSv1.3"), ("NORMAL:-VERS-TLS1.3", "TLSv1.2")])
def test_gnutls_serves_the_proxys_client(bed: Bed, priority: str, version: str) -> None:
    port = free_port()
    with started(gnutls_server(bed, port, "--priority", priority), port, bed.folder):
        told = bed.fetch(port)
    assert told["version"] == version
    assert told["status"].split()[1] == "200"
    assert told["bytes"] > 100  # gnutls-serv tells of the connection


@pytest.mark.parametrize("name", [*SERVERS, "gnutls-1.3", "gnutls-1.2"])
def test_sessions_of_others_are_resumed(bed: Bed, name: str) -> None:
    """None of these servers says its tickets behind data, where they are dropped. A connection that begins before a
    thread has read the ticket of the one before does not resume."""
    port, late = free_port(), bed.tickets_late()
    if name.startswith("gnutls"):
        priority = "NORMAL" if name == "gnutls-1.3" else "NORMAL:-VERS-TLS1.3"
        command = gnutls_server(bed, port, "--priority", priority)
    else:
        make, more, _ = SERVERS[name]
        command = make(bed, port, *more)
    with started(command, port, bed.folder):
        resumed = bed.fetch(port, "visit")["resumed"]
    assert bed.tickets_late() == late
    assert not resumed[0] and sum(resumed) >= 3, resumed


def test_pythons_ssl_serves_the_proxys_client(bed: Bed) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = bed.certificate.server_context().wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        told = bed.fetch(server.server_port)
        thread.join(DEADLINE_S)
    assert (told["bytes"], told["sha256"]) == (len(BODY), HASH)


# --- their clients, our server ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def serving(bed: Bed) -> Iterator[int]:
    """The port of our end as a server."""
    process = subprocess.Popen(
        [sys.executable, str(END), "serve"],
        env=bed.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(json.loads(process.stdout.readline())["port"])
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def run(command: Sequence[str], feed: bytes | None = None, **options: Any) -> bytes:
    done = subprocess.run(command, input=feed, capture_output=True, timeout=DEADLINE_S, check=False, **options)
    assert done.returncode == 0, (command, done.stderr[-2000:])
    return done.stdout


def test_curl(bed: Bed, serving: int) -> None:
    url = f"https://localhost:{serving}/"
    for version in (("--tlsv1.3",), ("--tls-max", "1.2")):
        assert run([need("curl"), "-sS", "-4", *version, "--cacert", str(bed.certificate.certificate), url]) == BODY


def test_node(bed: Bed, serving: int) -> None:
    script = """
        const trust = require('fs').readFileSync(process.argv[2]);
        require('https').get(process.argv[1], {ca: trust}, response => response.pipe(process.stdout));
    """
    assert run([need("node"), "-e", script, f"https://localhost:{serving}/", str(bed.certificate.certificate)]) == BODY


def test_pythons_ssl(bed: Bed, serving: int) -> None:
    with urllib.request.urlopen(
        f"https://localhost:{serving}/", timeout=DEADLINE_S, context=bed.certificate.client_context()
    ) as response:
        assert response.read() == BODY


REQUEST = b"GET / HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_client(bed: Bed, serving: int, version: str) -> None:
    trust = ("-CAfile", str(bed.certificate.certificate), "-verify_return_error", "-verify_hostname", "localhost")
    connect = ("-connect", f"127.0.0.1:{serving}", "-servername", "localhost")
    out = run([need("openssl"), "s_client", "-quiet", "-ign_eof", version, *connect, *trust], REQUEST)
    assert out.partition(b"\r\n\r\n")[2] == BODY


@pytest.mark.parametrize("priority", ["NORMAL", "NORMAL:-VERS-TLS1.3", "NORMAL:-CIPHER-ALL:+CHACHA20-POLY1305"])
def test_gnutls_client(bed: Bed, serving: int, priority: str) -> None:
    command = [need("gnutls-cli"), "--port", str(serving), "--x509cafile", str(bed.certificate.certificate)]
    out = run([*command, "--priority", priority, "--logfile", os.devnull, "localhost"], REQUEST)
    assert out.partition(b"\r\n\r\n")[2] == BODY


# --- nothing weak -----------------------------------------------------------------------------------------------------

WEAK: dict[str, Callable[[ssl.SSLContext], None]] = {
    "TLS 1.0": lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1),
    "TLS 1.1": lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_1),
    **{
        cipher: lambda context, cipher=cipher: (  # type: ignore[misc]
            setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_2),
            context.set_ciphers(f"{cipher}:@SECLEVEL=0"),
        )
        for cipher in (
            "ECDHE-ECDSA-AES128-SHA",
            "ECDHE-ECDSA-AES256-SHA384",
            "ECDHE-ECDSA-CAMELLIA128-SHA256",
            "AES128-GCM-SHA256",
            "ECDHE-ECDSA-NULL-SHA",
            "AECDH-AES128-SHA",
        )
    },
}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("offer", WEAK)
def test_what_is_weak_is_refused(serving: int, offer: str) -> None:
    """A client that offers nothing else gets an alert, as from a server that testssl.sh calls strong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    WEAK[offer](context)
    with create_connection(("127.0.0.1", serving), DEADLINE_S) as sock:
        with pytest.raises((ssl.SSLError, ConnectionResetError)) as failure:
            context.wrap_socket(sock)
    assert "CERTIFICATE" not in str(failure.value)
