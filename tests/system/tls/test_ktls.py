"""The kernel's TLS interface on offloaded sockets: its calls, and unmodified programs whose OpenSSL knows it."""

from __future__ import annotations

import http.client
import os
import platform
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from beds.authority import Certificate, certificate_for_localhost
from beds.kernel_tls import kernel_changes_keys, kernel_tls_reason, tls_stat
from beds.preload import PreloadBed
from beds.process_memory import memory_of
from beds.script_outcomes import Outcomes
from beds.scripts import RUN_S
from system.tls.programs.ktls_scripts import SCRIPTS
from xts_lab.free_ports import free_port
from xts_proxy.status import control_socket

FOLDER = Path(__file__).with_name("programs")
DEADLINE_S = 20.0
#: Scripts that change keys, which a kernel's TLS can since Linux 6.14.
CHANGES_KEYS = {"other_keys", "keys_that_have_expired_over_exec"}
NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def peer(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of the kernel's that talks with one client after the other; its port."""

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                sock, _ = listener.accept()
                sock.settimeout(DEADLINE_S)
                with closing(sock), suppress(ConnectionResetError):
                    talk(sock)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_for_localhost(tmp_path_factory.mktemp("ktls"))


def run_script(name: str, port: int) -> list[str]:
    return [sys.executable, str(FOLDER / "ktls_scripts.py"), name, str(port)]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_as_the_kernel_does(name: str) -> None:
    """What the scripts assert is true of the kernel's own sockets."""
    if reason := kernel_tls_reason():
        pytest.skip(f"{reason}: tests/vm/run runs this test where there is")
    if name in CHANGES_KEYS and not kernel_changes_keys():
        pytest.skip(f"Linux has this since 6.14, and this one is {platform.release()}")
    with peer(echo) as port:
        subprocess.run(run_script(name, port), check=True, timeout=60)


@pytest.fixture(scope="module")
def offloaded(request: pytest.FixtureRequest, bed: PreloadBed) -> Outcomes:
    def run(names: str, _: str) -> bytes:
        with peer(echo) as port:
            return bed.run(run_script(names, port), strict=True, timeout_s=RUN_S).stdout

    return Outcomes(request, run)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_offloaded(name: str, offloaded: Outcomes) -> None:
    offloaded.check("test_offloaded", name)


@contextmanager
def tls_echo(context: ssl.SSLContext) -> Iterator[int]:
    def talk(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as wrapped:
            while data := wrapped.recv(1 << 16):
                wrapped.sendall(data)
            wrapped.unwrap()

    with peer(talk) as port:
        yield port


CLIENTS = [
    ("TLSv1_2", "ECDHE-ECDSA-AES128-GCM-SHA256", "tx rx"),
    ("TLSv1_2", "ECDHE-ECDSA-AES256-GCM-SHA384", "tx rx"),
    ("TLSv1_2", "ECDHE-ECDSA-AES128-CCM", "tx rx"),
    ("TLSv1_2", "ECDHE-ECDSA-CHACHA20-POLY1305", "tx rx"),
    ("TLSv1_3", "", "tx"),  # OpenSSL 3.0 receives with it in 1.2 only
    ("TLSv1_2", "ECDHE-ECDSA-AES128-SHA256", ""),  # CBC: no kernel has it
]


@pytest.mark.parametrize(("version", "ciphers", "expected"), CLIENTS)
def test_pythons_ssl_hands_its_keys_over(
    version: str, ciphers: str, expected: str, bed: PreloadBed, certificate: Certificate
) -> None:
    if ssl.OPENSSL_VERSION_INFO >= (3, 2) and version == "TLSv1_3":
        expected = "tx rx"
    before = tls_stat()
    context = certificate.server_context()
    context.set_ciphers("ALL")
    with tls_echo(context) as port:
        client = (sys.executable, str(FOLDER / "ktls_client.py"))
        arguments = (str(port), str(certificate.both), version, ciphers, "1000000")
        done = bed.run([*client, *arguments], strict=True)
    assert done.stdout.decode().strip() == expected
    if before:
        after = tls_stat()
        kernels = expected if version == "TLSv1_2" or kernel_changes_keys() else ""
        used = [after[name] > before[name] for name in ("TlsTxSw", "TlsRxSw")]
        assert used == ["tx" in kernels, "rx" in kernels], "the proxy's kernel"


def nginx_configuration(folder: Path, port: int, certificate: Certificate) -> Path:
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in NGINX_FOLDERS)
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; {'user root;' if os.geteuid() == 0 else ''} pid {folder}/nginx.pid;\n"
        f"error_log {folder}/error.log debug;\n"
        f"events {{ }}\nhttp {{ access_log off; {temporary} sendfile on; keepalive_timeout 60; server {{\n"
        f"listen 127.0.0.1:{port} ssl; root {folder};\n"
        f"ssl_certificate {certificate.both}; ssl_certificate_key {certificate.both};\n"
        f"ssl_protocols TLSv1.2 TLSv1.3; ssl_conf_command Options KTLS; }} }}\n"
    )
    return path


def fetch(connection: http.client.HTTPSConnection, path: str) -> bytes:
    """Over the connection, which is made first; as soon as somebody listens."""
    deadline = time.monotonic() + DEADLINE_S
    while connection.sock is None:
        try:
            connection.connect()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "nginx does not listen"
            time.sleep(0.05)
    connection.request("GET", path)
    return connection.getresponse().read()


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_nginx_hands_its_keys_over_and_sends_files(
    version: str, bed: PreloadBed, certificate: Certificate, tmp_path: Path
) -> None:
    """`ssl_conf_command Options KTLS`: files leave by SSL_sendfile(), which there is with kernel TLS only."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    port = free_port()
    configuration = nginx_configuration(tmp_path, port, certificate)
    context = certificate.client_context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=DEADLINE_S)
    with bed.start([program, "-p", str(tmp_path), "-c", str(configuration)]), closing(connection):
        assert fetch(connection, "/file") == content
        status = control_socket.ask(bed.proxy.control, control_socket.Question("status", connections=True))
        ((send, receive),) = [
            (row["send_ulps"], row["receive_ulps"]) for row in status["connections"] if row["send_ulps"] != ""
        ]
        assert send == "tls_keys"
        assert receive == ("tls_keys" if version == "TLSv1_2" or ssl.OPENSSL_VERSION_INFO >= (3, 2) else "")
        assert fetch(connection, "/file") == content
    log = (tmp_path / "error.log").read_text()
    assert "BIO_get_ktls_send(): 1" in log
    assert "SSL_sendfile: " in log


# --- keys are nowhere else --------------------------------------------------------------------------------------------

KEY = bytes.fromhex("c0ffee0123456789fedcba9876543210")


@contextmanager
def holding_keys(bed: PreloadBed, port: int, env: dict[str, str]) -> Iterator[Callable[[], None]]:
    """A program that has pushed KEY both ways and talked; the call makes it close its connection, and it goes on."""
    arguments = [sys.executable, str(FOLDER / "ktls_scripts.py"), "hold", str(port), KEY.hex()]
    with bed.start(arguments, env={"XTS_STRICT": "1"} | env) as process:
        assert process.stdout is not None
        output = process.stdout
        assert output.readline() == b"talked\n"

        def close() -> None:
            process.send_signal(signal.SIGUSR1)
            assert output.readline() == b"closed\n"

        yield close


def test_keys_are_in_no_capture(bed: PreloadBed, tmp_path: Path) -> None:
    capture = tmp_path / "frames.pcap"
    with peer(echo) as port, holding_keys(bed, port, {"XTS_PCAP": str(capture)}) as close:
        close()
    frames = capture.read_bytes()
    assert b"\x89\xe9" in frames, "the push"  # SIOC_PUSH_ULP_TX
    assert KEY not in frames


def test_the_proxy_forgets_keys(bed: PreloadBed) -> None:
    """Its memory has the key while a connection has, and not after that; what it shares with the host never has. Root
    finds it there only where the kernel has no memory that even root cannot read."""

    def places() -> list[str]:
        return [line for line, content in memory_of(bed.proxy.workers_pid) if KEY in content]

    try:
        next(memory_of(bed.proxy.workers_pid))
    except OSError as error:
        pytest.skip(f"the proxy's memory cannot be read: {error.strerror}")
    with peer(echo) as port, holding_keys(bed, port, {}) as close:
        held = places()
        kind = control_socket.ask(bed.proxy.control, control_socket.Question("status"))["tls"]["key_memory_kind"]
        assert held or kind == 1 or not kernel_tls_reason(), "the key is looked for in the wrong place"
        assert not [line for line in held if "memfd" in line], "what is shared"
        close()
        deadline = time.monotonic() + DEADLINE_S
        while (left := places()) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not left
