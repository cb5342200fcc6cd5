"""A running xts-proxy with identities and roots of TLS: its files, its configuration, and hosts of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from xts_messages.attaching.attach import attach

from beds.authority import Authority, Issued
from beds.operated_proxy import Proxy
from beds.scripted_host import ScriptedHost
from beds.worker import FEATURES

AUTHORITY = Authority()
WWW, OTHER = AUTHORITY.issue("localhost"), AUTHORITY.issue("other.example", kind="rsa")
READY = 0xFF01


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that another user can read."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "roots.pem").write_bytes(AUTHORITY.certificate)
        yield path


def identity(directory: Path, name: str, issued: Issued, **more: str) -> str:
    """Its files, and the table that names them."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    certificate.write_bytes(issued.certificate)
    key.touch(0o600)
    key.write_bytes(issued.key)
    values = {"name": name, "certificate": str(certificate), "key": str(key)} | more
    return "[[tls.identity]]\n" + "".join(f"{field} = {json.dumps(value)}\n" for field, value in values.items())


def trust(directory: Path) -> str:
    return f'[[tls.trust]]\nname = "default"\nfile = "{directory}/roots.pem"\n'


@contextmanager
def host_of(proxy: Proxy) -> Iterator[ScriptedHost]:
    attachment = attach(proxy.endpoint, program="test")
    try:
        yield ScriptedHost(attachment.queue, attachment.epoch, {"features": FEATURES}).open()
    finally:
        attachment.close()
