"""Certificates of the peer, one of each kind, self-signed, and the proxy's configuration that trusts them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: As in native/measure.h.
TLS_NAME = "peer.bench.test"
#: The name of the trust roots in the proxy's configuration.
TRUST_NAME = "bench"
_KEYS = {"rsa": ("rsa:2048",), "ecdsa": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")}


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files: certificate and key of each kind, and both certificates together."""

    rsa: Path
    ecdsa: Path
    trust: Path

    @property
    def directory(self) -> Path:
        return self.trust.parent

    def tables(self) -> str:
        """For the configuration of a proxy."""
        return f"[[tls.trust]]\nname = {json.dumps(TRUST_NAME)}\nfile = {json.dumps(str(self.trust))}\n"


def make(directory: Path) -> Certificates:
    """Made by openssl, valid for two days. CalledProcessError when it fails."""
    directory.chmod(0o755)  # the proxy may run as somebody else
    trusted = ""
    for kind, key in _KEYS.items():
        certificate, secret = directory / f"{kind}.crt", directory / f"{kind}.key"
        name = ("-subj", f"/CN={TLS_NAME}", "-addext", f"subjectAltName=DNS:{TLS_NAME}")
        files = ("-keyout", str(secret), "-out", str(certificate))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", *key, "-nodes", *files, "-days", "2", *name],
            check=True,
            capture_output=True,
        )
        (directory / f"{kind}.pem").write_text(certificate.read_text() + secret.read_text())
        trusted += certificate.read_text()
    (directory / "trust.pem").write_text(trusted)
    return Certificates(directory / "rsa.pem", directory / "ecdsa.pem", directory / "trust.pem")
