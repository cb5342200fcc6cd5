"""Certificates that change without a signal, because their files were replaced: a whole xts-proxy, programs on its
sockets, and Python's ssl as the peer. What is found in files is in tests/unit/proxy/test_tls_files_renewed.py."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from beds.authority import Authority, Issued
from beds.kernel_server import KernelServer
from beds.operated_proxy import Proxy, running, user_to_become, wait
from beds.operated_tls import directory
from beds.tls_programs import DEADLINE_S, outcome, program, says, shown_by
from beds.ulp_tls import VERSIONS, client_context, server_context

__all__ = ["directory"]  # fixture

AUTHORITY = Authority()
OLD, NEW = (AUTHORITY.issue("localhost", kind=kind) for kind in ("ec", "rsa"))
WATCHED = "[tls]\nwatch_files_s = 0.1\n"
RECORDS = pytest.mark.parametrize("records", ["auto", "openssl"])


def put(directory: Path, issued: Issued, name: str = "own") -> None:
    """As certbot does: new files, and then links to them, of the key last."""
    number = len(list(directory.glob(f"{name}-*")))
    for kind, data in (("pem", issued.certificate), ("key", issued.key)):
        file = directory / f"{name}-{number}.{kind}"
        file.touch(0o600)
        file.write_bytes(data)
        if os.geteuid() == 0:
            shutil.chown(file, user_to_become())
        link = directory / "link"
        link.symlink_to(file)
        link.replace(directory / f"{name}.{kind}")


def table(directory: Path, name: str = "own") -> str:
    files = f'certificate = "{directory}/{name}.pem"\nkey = "{directory}/{name}.key"\n'
    return f'[[tls.identity]]\nname = "{name}"\n{files}'


def trust(directory: Path) -> str:
    (directory / "roots.pem").write_bytes(AUTHORITY.certificate)
    return f'[[tls.trust]]\nname = "default"\nfile = "{directory}/roots.pem"\n'


def certificate_at(port: int) -> bytes | None:
    with shown_by(port, client_context(AUTHORITY.certificate)) as tls:
        return tls.getpeercert(True)


def taken(proxy: Proxy, count: int) -> None:
    """That many times so far."""
    wait(lambda: proxy.status()["tls_files"]["taken"] == count, "renewal")


class Clients:
    """Clients of the listener at this port, several at a time, until it ends."""

    def __init__(self, port: int, count: int = 2) -> None:
        self.failures: list[BaseException] = []
        self.shown: list[bytes | None] = []
        self._port, self._ended = port, threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.shown.append(certificate_at(self._port))
            except (OSError, AssertionError) as failure:
                self.failures.append(failure)


class Server(KernelServer):
    """Of the kernel's sockets, at `port`: it wants a certificate of its clients, and remembers each."""

    def __init__(self) -> None:
        self.shown: list[bytes | None] = []
        self.failures: list[BaseException] = []
        self._context = server_context(AUTHORITY.issue("localhost"), verify_mode=ssl.CERT_REQUIRED)
        self._context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
        super().__init__()

    def serve(self, sock: socket.socket) -> None:
        try:
            with sock, self._context.wrap_socket(sock, server_side=True) as tls:
                tls.settimeout(DEADLINE_S)
                self.shown.append(tls.getpeercert(True))
                while data := tls.recv(100):
                    tls.sendall(data)
        except OSError as failure:
            self.failures.append(failure)


@RECORDS
def test_a_server_while_clients_connect(directory: Path, records: str) -> None:
    """No handshake fails, what is connected goes on, and who comes later sees the new one."""
    put(directory, OLD)
    text = f'{WATCHED}records = "{records}"\n' + table(directory)
    with running(directory, text) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        with shown_by(port, client_context(AUTHORITY.certificate)) as before, Clients(port) as clients:
            for count, issued in enumerate((NEW, OLD, NEW), 1):
                put(directory, issued)
                taken(proxy, count)
                assert certificate_at(port) == issued.der
            seen = len(clients.shown)
            wait(lambda: len(clients.shown) >= seen + 10, "more clients")
            before.sendall(b"y")
            assert before.recv(1) == b"y" and before.getpeercert(True) == OLD.der
        assert clients.failures == []
        assert set(clients.shown) == {OLD.der, NEW.der} and certificate_at(port) == NEW.der
        done, failures = outcome(served)
        assert failures == [] and done > 10
        assert proxy.status()["tls_files"] == {"taken": 3, "refused": 0, "waiting": {}}
        assert proxy.status()["proxy"]["reloads"] == {"taken": 0, "refused": 0}
        assert proxy.log.read_text().count("tls: new contents of files are in force: identity own") == 3


@RECORDS
def test_a_client_while_it_connects(directory: Path, records: str) -> None:
    put(directory, OLD)
    text = f'{WATCHED}records = "{records}"\nsession_cache = 0\n' + table(directory) + trust(directory)
    with running(directory, text) as proxy, Server() as server, program(proxy, "connect", str(server.port)) as client:
        for issued in (OLD, NEW, OLD):
            put(directory, issued)
            wait(lambda issued=issued: server.shown[-1:] == [issued.der], "the certificate")  # type: ignore[misc]
        done, failures = outcome(client)
        assert failures == [] and server.failures == []
        assert done > 0 and set(server.shown) == {OLD.der, NEW.der}


def test_roots_of_this_machine(directory: Path) -> None:
    """As `update-ca-certificates` writes them, in the folder that OpenSSL looks into. A client finds its server's
    authority there as soon as it is there, and not any more when it is not."""
    roots = directory / "roots"
    roots.mkdir()
    file = roots / "ca-certificates.crt"
    other = Authority("Another authority").certificate
    file.write_bytes(other)
    put(directory, NEW)
    environment = {"SSL_CERT_DIR": str(roots), "SSL_CERT_FILE": str(directory / "none")}
    with running(directory, WATCHED + table(directory), environment) as proxy, Server() as server:

        def done(count: int) -> bool:
            with program(proxy, "connect", str(server.port)) as client:
                wait(lambda: len(server.shown) + len(server.failures) >= count, "connections")
                return not outcome(client)[1]

        assert not done(1)
        file.write_bytes(other + AUTHORITY.certificate)
        taken(proxy, 1)
        assert done(len(server.shown) + len(server.failures) + 3)
        (roots / "new").write_bytes(other)
        (roots / "new").replace(file)
        taken(proxy, 2)
        assert not done(len(server.shown) + len(server.failures) + 1)


def test_what_does_not_fit_is_told_and_what_was_there_stays(directory: Path) -> None:
    """Once, by log, status and metrics; until it fits."""
    put(directory, OLD)
    text = WATCHED + table(directory)
    with running(directory, text) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        file = (directory / "own.pem").resolve()
        file.write_bytes(NEW.certificate)
        wait(lambda: proxy.status()["tls_files"]["waiting"], "what does not fit")
        why = "tls.identity[0].certificate: certificate and key do not belong together"
        found = proxy.status()["tls_files"]
        assert (found["taken"], found["refused"], list(found["waiting"])) == (0, 1, ["identity own"])
        assert found["waiting"]["identity own"].startswith(why)
        assert certificate_at(port) == OLD.der
        shown = subprocess.run(
            [sys.executable, "-m", "xts_proxy", "status", "--control", f"{directory}/proxy.sock"],
            capture_output=True, text=True, check=True, timeout=20,
        ).stdout  # fmt: skip
        line = f"tls: identity own: its files have changed, and do not fit: what was in force stays: {why}"
        assert line in shown
        metrics = proxy.metrics()
        assert (
            'xts_proxy_tls_file_renewals_total{result="refused"} 1' in metrics
            and "xts_proxy_tls_files_waiting 1" in metrics
        )
        (directory / "own.key").resolve().write_bytes(NEW.key)
        wait(lambda: certificate_at(port) == NEW.der, "the new certificate")
        assert proxy.status()["tls_files"] == {"taken": 1, "refused": 1, "waiting": {}}
        assert proxy.log.read_text().count("do not fit") == 1
        told = proxy.log.read_text() + json.dumps(proxy.status())
        assert not any(line in told for line in NEW.key.decode().splitlines())


def test_the_workers_die_while_files_do_not_fit(directory: Path) -> None:
    """Others go on with what was in force: not even the key is asked for again."""
    put(directory, OLD)
    with running(directory, WATCHED + table(directory)) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        (directory / "own.pem").unlink()
        (directory / "own.key").unlink()
        wait(lambda: proxy.status()["tls_files"]["waiting"], "what does not fit")
        os.kill(proxy.pid_of("xts-workers"), signal.SIGKILL)
        wait(lambda: "another process goes on" in proxy.log.read_text(), "other workers")
        assert certificate_at(port) == OLD.der


def test_keys_of_the_others_go_on(directory: Path) -> None:
    """Also when the configuration of before is gone: they are the same keys, in the process that has them."""
    put(directory, OLD)
    put(directory, OLD, "other")
    text = WATCHED + table(directory) + table(directory, "other")
    with running(directory, text) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        for count, issued in enumerate((NEW, OLD, NEW), 1):
            put(directory, issued, "other")
            taken(proxy, count)
            assert certificate_at(port) == OLD.der
        assert outcome(served)[1] == []


@pytest.mark.parametrize("how", ["reload", "renewal"])
@VERSIONS
def test_sessions_of_what_has_not_changed_go_on(directory: Path, version: ssl.TLSVersion, how: str) -> None:
    put(directory, OLD)
    put(directory, OLD, "other")
    context = client_context(AUTHORITY.certificate, minimum_version=version, maximum_version=version)
    text = WATCHED + table(directory) + table(directory, "other")
    with running(directory, text) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        with shown_by(port, context) as first:
            session = first.session
        if how == "reload":
            proxy.hang_up("taken")
        else:
            put(directory, NEW, "other")
            taken(proxy, 1)
        with shown_by(port, context, session) as again:
            assert again.session_reused


@VERSIONS
def test_what_clients_resume(directory: Path, version: ssl.TLSVersion) -> None:
    """A session of the old certificate is resumed no more: there is a whole handshake, with the new one."""
    put(directory, OLD)
    context = client_context(AUTHORITY.certificate, minimum_version=version, maximum_version=version)
    with running(directory, WATCHED + table(directory)) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        with shown_by(port, context) as first:
            session = first.session
        with shown_by(port, context, session) as again:
            assert again.session_reused
            session = again.session
        put(directory, NEW)
        taken(proxy, 1)
        with shown_by(port, context, session) as fresh:
            assert not fresh.session_reused and fresh.getpeercert(True) == NEW.der


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to go without")
@pytest.mark.parametrize("may", [True, False], ids=["with the right", "without"])
def test_files_that_only_root_may_read(directory: Path, may: bool) -> None:
    """A folder as certbot's. The proxy has a right to read them, if at all: without, it says so, and reads them when it
    may."""
    folder = directory / "live"
    folder.mkdir(mode=0o700)
    put(folder, OLD)
    for file in (*folder.glob("*.pem"), *folder.glob("*.key")):
        os.chown(file, 0, 0)
    under = [] if may else ["setpriv", "--bounding-set", "-dac_read_search"]
    with running(directory, WATCHED + table(folder), under=under) as proxy, program(proxy, "serve") as served:
        port = int(says(served))
        put(folder, NEW)
        for file in (*folder.glob("*.pem"), *folder.glob("*.key")):
            os.chown(file, 0, 0)
        if not may:
            wait(lambda: proxy.status()["tls_files"]["waiting"], "what cannot be read")
            (why,) = proxy.status()["tls_files"]["waiting"].values()
            assert "Permission denied" in why
            for file in (folder, *folder.glob("*.pem"), *folder.glob("*.key")):
                shutil.chown(file, user_to_become())
        wait(lambda: certificate_at(port) == NEW.der, "the new certificate")
        assert "CapEff:\t0000000000000000\n" in Path(f"/proc/{proxy.process.pid}/status").read_text()
