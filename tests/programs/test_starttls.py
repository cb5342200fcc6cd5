"""Peek mode against real servers: PostgreSQL's SSLRequest, SMTP's STARTTLS (the paper, "ULP protocol handshake")."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds.authority import Certificate, certificate_for_localhost
from beds.proxy_process import ProxyProcess, running_proxy
from xts_lab.free_ports import free_port

CLIENT = Path(__file__).with_name("programs") / "starttls_client.py"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_for_localhost(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[ProxyProcess]:
    tables = f'[[tls.trust]]\nname = "test"\nfile = "{certificate.certificate}"\n'
    with running_proxy(tmp_path_factory.mktemp("proxy"), tables) as made:
        yield made


def client(proxy: ProxyProcess, protocol: str, port: int) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, str(CLIENT), protocol, str(port)],
        env={**os.environ, "XTS_ENDPOINT": proxy.endpoint},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout)
    return told


@contextmanager
def postgresql(certificate: Certificate) -> Iterator[int]:
    """A cluster of its own. Its server refuses to run as root: it runs as nobody then."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="xts-postgresql-") as name:
        folder, port = Path(name), free_port()
        os.chown(folder, account.pw_uid, account.pw_gid)
        for source, target in ((certificate.certificate, "server.crt"), (certificate.key, "server.key")):
            shutil.copy(source, folder / target)
            os.chown(folder / target, account.pw_uid, account.pw_gid)
            (folder / target).chmod(0o600)
        begin = [programs[-1] / "initdb", "-D", folder / "data", "-U", "test", "--auth=trust", "--no-sync"]
        subprocess.run(begin, check=True, capture_output=True, cwd=folder, timeout=DEADLINE_S, **who)
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "ssl": "on",
            "ssl_cert_file": folder / "server.crt",
            "ssl_key_file": folder / "server.key",
            "fsync": "off",
            "shared_buffers": "1MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            command = [programs[-1] / "postgres", "-D", folder / "data", *options]
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **who)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while b"ready to accept connections" not in (said := (folder / "log").read_bytes()):
                assert server.poll() is None, said.decode()
                assert time.monotonic() < deadline, said.decode()
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()
            server.wait(10)


def test_postgresql_changes_to_tls_in_the_proxy(proxy: ProxyProcess, certificate: Certificate) -> None:
    with postgresql(certificate) as port:
        told = client(proxy, "postgresql", port)
    assert told == {"rows": [["42", "t"]], "version": "TLSv1.3"}


def test_smtp_changes_to_tls_in_the_proxy(proxy: ProxyProcess, certificate: Certificate) -> None:
    controller = pytest.importorskip("aiosmtpd.controller")

    class Sink:
        """Takes nothing: the test ends before a message."""

    server = controller.Controller(
        Sink(), hostname="127.0.0.1", port=free_port(), tls_context=certificate.server_context(), require_starttls=True
    )
    server.start()
    try:
        told = client(proxy, "smtp", server.port)
    finally:
        server.stop()
    assert "250-STARTTLS" in told["clear"]
    assert told["version"] == "TLSv1.3"
    assert not any("STARTTLS" in line for line in told["lines"])  # it is on: no more of it (RFC 3207 4.2)
    assert told["lines"][-1].startswith("250 ")
