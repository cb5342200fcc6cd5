"""Certificates of the peer, one of each kind, self-signed, and the proxy's configuration that trusts them, and has them
for its own servers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from xts_lab.certificate import self_signed

#: As in native/measure.h.
TLS_NAME = "peer.bench.test"
#: The name of the trust roots in the proxy's configuration.
TRUST_NAME = "bench"


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
        """For the configuration of a proxy: what a client trusts, and an identity of each kind by its name."""
        text = f"[[tls.trust]]\nname = {json.dumps(TRUST_NAME)}\nfile = {json.dumps(str(self.trust))}\n"
        for kind in ("rsa", "ecdsa"):
            both = json.dumps(str(self.of(kind)))
            text += f'[[tls.identity]]\nname = "{kind}"\ncertificate = {both}\nkey = {both}\n'
        return text

    def of(self, kind: str) -> Path:
        return self.rsa if kind == "rsa" else self.ecdsa


def make(directory: Path) -> Certificates:
    """Valid for two days."""
    directory.chmod(0o755)  # the proxy may run as somebody else
    rsa, ecdsa = (self_signed(directory, kind, TLS_NAME, kind) for kind in ("rsa", "ecdsa"))
    trust = directory / "trust.pem"
    trust.write_bytes(rsa.certificate.read_bytes() + ecdsa.certificate.read_bytes())
    return Certificates(rsa.both, ecdsa.both, trust)
