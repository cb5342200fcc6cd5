"""A self-signed certificate for a name, made with the openssl command, for labs, the demo and the bench."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from .privilege import LabError

_KEYS = {"rsa": ["rsa:2048"], "ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]}
DAYS = 2


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """PEM files: certificate, key, and both in one."""

    certificate: Path
    key: Path
    both: Path


def self_signed(directory: Path, stem: str, name: str, kind: str = "ecdsa") -> SelfSigned:
    """kind: "rsa" (2048 bits) or "ecdsa" (P-256). LabError: openssl is not installed, or fails."""
    made = SelfSigned(*(directory / f"{stem}{ending}.pem" for ending in ("", ".key", ".both")))
    command = ["openssl", "req", "-x509", "-newkey", *_KEYS[kind], "-nodes", "-days", str(DAYS)]
    command += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    command += ["-keyout", str(made.key), "-out", str(made.certificate)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError("openssl is not installed; deploy/setup as root installs it") from None
    if done.returncode != 0:
        raise LabError(f"openssl req: {done.stderr.strip()}")
    made.both.touch(0o600)
    made.both.write_bytes(made.certificate.read_bytes() + made.key.read_bytes())
    return made
