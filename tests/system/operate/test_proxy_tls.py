"""TLS as the operator configures it: a whole xts-proxy, its rights given up; reloads, and what it tells of secrets."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from beds.authority import Issued
from beds.operated_proxy import Proxy, running, user_to_become, wait
from beds.operated_tls import AUTHORITY, OTHER, READY, WWW, directory, host_of, identity, trust
from beds.process_memory import memory_of
from beds.ulp_tls import server_context
from beds.worker import connected, receive_exactly, server

__all__ = ["directory", "server"]  # fixtures


def may_serve(proxy: Proxy, name: str) -> bool:
    """Is an identity of this name taken in a push?"""
    with host_of(proxy) as host:
        answer = host.push(number=host.new_socket(), ulp="TLS", role=2, identity=name)
        assert answer.error in (0, errno.ENOENT)
        return answer.error == 0


def secrets_of(issued: Issued) -> list[str]:
    """Lines of its key."""
    return [line for line in issued.key.decode().splitlines() if not line.startswith("-----")]


def test_a_connection_and_what_is_told_of_it(directory: Path, server: socket.socket) -> None:
    """Status, metrics and log count it, and have nothing of the key."""
    with running(directory, identity(directory, "www", WWW) + trust(directory)) as proxy:
        with host_of(proxy) as host, connected(host, server) as c:
            assert c.push("TLS", server_name="localhost", identity="www").error == 0
            context = server_context(WWW, verify_mode=ssl.CERT_REQUIRED)
            context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
            with context.wrap_socket(c.peer, server_side=True) as peer:
                assert peer.getpeercert(True) == WWW.der
                assert c.receive().fields["control_type"] == READY
                c.send(b"through the proxy")
                assert receive_exactly(peer, 17) == b"through the proxy"
                peer.sendall(b"and back")
                assert c.read().payload == b"and back"
                status = proxy.status(connections=True)
                (row,) = [row for row in status["connections"] if row["receive_ulps"]]
                assert row["receive_ulps"] == row["send_ulps"] == "tls"
                assert row["receive_carrier"] == row["send_carrier"] == "ours"
                assert status["tls"]["client_handshakes"] == 1
        with socket.socket(socket.AF_UNIX) as asker:
            asker.connect(str(directory / "metrics.sock"))
            asker.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            metrics = b"".join(iter(lambda: asker.recv(65536), b"")).decode()
        assert 'xts_tls_handshakes_total{role="client"} 1' in metrics
        command = [sys.executable, "-m", "xts_proxy", "status", "--connections", "--control", f"{directory}/proxy.sock"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        assert "tls: 1 handshakes, 0 of them resumed" in shown
        assert "tls: records: 1 connections by the proxy, 0 by OpenSSL" in shown
        told = json.dumps(status) + metrics + shown + proxy.log.read_text()
        assert not any(secret in told for secret in secrets_of(WWW))


@pytest.mark.parametrize("records", ["auto", "openssl"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_secrets_of_a_connection_go_with_it(
    directory: Path, server: socket.socket, version: ssl.TLSVersion, records: str
) -> None:
    """Of what decrypts a connection nothing is left in the proxy's memory when it is closed; and where it has left
    OpenSSL, the master secret of TLS 1.2 goes after the handshake, and the secrets of 1.3 are in the memory for keys,
    which root can read only where the kernel has no better one (test_keys_in_their_memory.py)."""
    text = identity(directory, "www", WWW) + trust(directory)
    text += f'[tls]\nsession_cache = 0\nrecords = "{records}"\n'
    with running(directory, text) as proxy, host_of(proxy) as host, connected(host, server) as c:
        try:
            next(memory_of(proxy.pid_of("xts-workers")))
        except OSError as error:
            pytest.skip(f"the proxy's memory cannot be read: {error.strerror}")
        workers, log = proxy.pid_of("xts-workers"), directory / "secrets"
        context = server_context(WWW, maximum_version=version, keylog_filename=str(log))
        assert c.push("TLS", server_name="localhost").error == 0
        with context.wrap_socket(c.peer, server_side=True) as peer:
            assert c.receive().fields["control_type"] == READY
            c.send(b"through the proxy")
            assert receive_exactly(peer, 17) == b"through the proxy"
            secrets = [bytes.fromhex(line.split()[2]) for line in log.read_text().splitlines() if line[0] != "#"]

            def left() -> list[str]:
                whole = memory_of(workers)
                return [where for where, content in whole for secret in secrets if secret in content]

            readable = proxy.status()["tls"]["key_memory_kind"] != 1
            kept = records == "openssl" or (version == ssl.TLSVersion.TLSv1_3 and readable)
            assert bool(left()) == kept, "they are looked for in the wrong place, or were not wiped"
        c.close()
        wait(lambda: not left(), "end of its secrets")
        assert "is not wiped" not in proxy.log.read_text()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="giving up rights needs some")
def test_a_reload_reads_what_only_root_may(directory: Path) -> None:
    """With a right that is in force for as long as that takes."""
    text = identity(directory, "www", WWW) + trust(directory)
    with running(directory, text) as proxy:
        assert may_serve(proxy, "www") and not may_serve(proxy, "other")
        # No dumps: what /proc has of it is root's, though the process is not.
        assert Path(f"/proc/{proxy.process.pid}/mem").stat().st_uid == 0
        proxy.write_config(text + identity(directory, "other", OTHER))
        proxy.hang_up("taken")
        assert may_serve(proxy, "www") and may_serve(proxy, "other")
        assert "CapEff:\t0000000000000000\n" in Path(f"/proc/{proxy.process.pid}/status").read_text()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to go without")
def test_without_that_right_files_are_read_as_its_user_may(directory: Path) -> None:
    text = identity(directory, "www", WWW) + trust(directory)
    without = ["setpriv", "--bounding-set", "-dac_read_search"]
    with running(directory, text, under=without) as proxy:
        text += identity(directory, "other", OTHER)
        proxy.write_config(text)
        said = proxy.hang_up("refused")
        assert "other.key: Permission denied" in said and "tls.identity[1].key" in said
        assert may_serve(proxy, "www") and not may_serve(proxy, "other")
        for name in ("www.key", "other.key"):
            shutil.chown(directory / name, user_to_become())
        proxy.hang_up("taken")
        assert may_serve(proxy, "www") and may_serve(proxy, "other")
        assert not any(secret in proxy.log.read_text() for secret in secrets_of(WWW) + secrets_of(OTHER))


def test_a_reload_changes_what_new_connections_get(directory: Path, server: socket.socket) -> None:
    """Connections of before keep theirs."""
    text = identity(directory, "www", WWW) + trust(directory)
    with running(directory, text) as proxy, host_of(proxy) as host:
        with connected(host, server) as c:
            assert c.push("TLS", server_name="localhost").error == 0
            with server_context(WWW).wrap_socket(c.peer, server_side=True) as peer:
                assert c.receive().fields["control_type"] == READY
                proxy.write_config("[tls]\nverify_required = true\n" + identity(directory, "other", OTHER))
                proxy.hang_up("taken")
                assert not may_serve(proxy, "www") and may_serve(proxy, "other")
                c.send(b"still")
                assert receive_exactly(peer, 5) == b"still"
                refused = host.push(number=host.new_socket(), ulp="TLS", role=1, verify=0)
                assert refused.error == errno.EACCES


def test_a_mistake_in_a_certificate_ends_the_start(directory: Path) -> None:
    text = identity(directory, "www", WWW)
    (directory / "www.pem").write_bytes(OTHER.certificate)
    with pytest.raises(AssertionError, match="certificate and key do not belong together"):
        with running(directory, text):
            pass
