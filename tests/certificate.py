"""A self-signed certificate of `localhost`, and the two TLS contexts of a test."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    file: Path  # key and certificate, PEM

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file)
        return context

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))


def certificate_for_localhost(folder: Path) -> Certificate:
    """Made by openssl, valid for a day, also for 127.0.0.1 and ::1."""
    file = folder / "localhost.pem"
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file)
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")
    subprocess.run(
        ["openssl", "req", "-x509", *key, *name, "-days", "1", "-out", f"{file}.crt"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    with file.open("ab") as whole:
        whole.write(Path(f"{file}.crt").read_bytes())
    return Certificate(file)
