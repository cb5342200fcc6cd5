"""The credentials of a metrics server: a certificate with its key for TLS, and a bearer token that it asks for.

A process that may read the files reads them, and passes the content to the process that serves metrics, which opens no
files.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from typing import Any

from xts_messages.settings.configuration_file import read_bytes

_TOKEN_BYTES_MIN = 16
_TOKEN_BYTES_MAX = 1024
#: RFC 6750, section 2.1.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class CredentialError(ValueError):
    """`which`: "certificate", "key" or "token"; the text says what is wrong with its file."""

    def __init__(self, which: str, problem: str) -> None:
        super().__init__(problem)
        self.which = which

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.which, *self.args), self.__dict__


@dataclass(frozen=True, slots=True)
class Credentials:
    """Certificate (followed by its chain) and key in PEM, and the token; b"" for none."""

    certificate: bytes = b""
    key: bytes = b""
    token: bytes = b""

    def __repr__(self) -> str:
        return "Credentials(...)"

    def context(self) -> ssl.SSLContext | None:
        """For TLS; None without a certificate. CredentialError: certificate and key do not form a usable pair."""
        if not self.certificate:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The ssl module accepts only the name of a file.
        memory = os.memfd_create("certificate")
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(self.certificate + b"\n" + self.key)
            context.load_cert_chain(f"/proc/self/fd/{memory}", password=_no_password)
        except ssl.SSLError as error:
            what = (error.reason or str(error)).replace("_", " ").lower()
            raise CredentialError("key", f"certificate and key cannot be used: {what}") from error
        finally:
            os.close(memory)
        return context


def _no_password() -> str:
    raise CredentialError("key", "the key is encrypted; give one without a password")


def read(certificate: str, key: str, token: str) -> Credentials:
    """Reads the files ("": none). CredentialError says what is wrong with which."""
    if bool(certificate) != bool(key):
        which, other = ("key", "certificate") if certificate else ("certificate", "key")
        raise CredentialError(which, f"is needed with a {other}")
    secret = _content("token", token).strip()
    if token and not (_TOKEN_BYTES_MIN <= len(secret) <= _TOKEN_BYTES_MAX and _TOKEN.fullmatch(secret)):
        known = f"{_TOKEN_BYTES_MIN} to {_TOKEN_BYTES_MAX} letters, digits and . _ ~ + / -"
        raise CredentialError("token", f"{token}: a token has {known}")
    found = Credentials(_content("certificate", certificate), _content("key", key), secret)
    if certificate and not found.certificate.strip():
        raise CredentialError("certificate", f"{certificate}: is empty")
    found.context()
    return found


def _content(which: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        return read_bytes(path)
    except OSError as error:
        raise CredentialError(which, f"{path}: {error.strerror}") from error
