"""Errors of TLS in the proxy that are errors of the standard ssl module as well. So they are caught by `except
ssl.SSLError`, `except ssl.SSLCertVerificationError`, and by libraries that turn those into their own."""

from __future__ import annotations

import ssl

from ._errors import UlpError

_UNSPECIFIED = 1  # X509_V_ERR_UNSPECIFIED: the proxy has the reason as text


class TlsError(UlpError, ssl.SSLError):
    """A handshake of TLS failed, or the peer broke the protocol, sent an alert, or left out the end of its stream: the
    text has the reason."""

    reason = "HANDSHAKE_FAILURE"
    library = "SSL"


class CertificateError(TlsError, ssl.SSLCertVerificationError):
    """Our side did not accept the peer's certificate, or the peer did not accept ours: the text says why."""

    reason = "CERTIFICATE_VERIFY_FAILED"

    def __init__(self, code: int, text: str, fault: str) -> None:
        super().__init__(code, text, fault)
        self.verify_code = _UNSPECIFIED
        self.verify_message = text
