"""`sock.tls`: the results of a TLS handshake in the proxy, with the methods of `ssl.SSLSocket` and `ssl.SSLObject`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xts_messages.wire.ulps import BY_NAME, Item

from .layers import Tls

if TYPE_CHECKING:
    import ssl

_ITEMS = {item.name: item for item in BY_NAME["TLS"].items}
VERSIONS = {0x0303: "TLSv1.2", 0x0304: "TLSv1.3"}
CRYPTO = {1: "user", 2: "kernel", 3: "device"}


@dataclass(frozen=True, slots=True)
class Crypto:
    """Where the cryptography of each direction is done: "user" (OpenSSL in the proxy), "kernel" (kTLS there) or
    "device". `reason`: why it is not the best kind; "" if it is."""

    send: str
    receive: str
    reason: str = ""


class TlsConnection:
    """TLS in the proxy, below a socket. The results of the handshake are requested once, which takes a round trip, and
    kept; None until the handshake is done. OSError (ENOTCONN, ECONNRESET, EBADF) if they cannot be requested any more.

    Replaces an `ssl.SSLObject` for libraries that read its properties.
    """

    __slots__ = ("_known", "_read_item", "_sock", "layer")

    def __init__(self, sock: Any, layer: Tls, read_item: Callable[[Item], Any]) -> None:
        self._sock = sock
        self._read_item = read_item
        self._known: dict[str, Any] = {}
        #: the parameters it was pushed with
        self.layer = layer

    def _ask(self, name: str) -> Any:
        if name not in self._known:
            value = self._read_item(_ITEMS[name])
            if value is None:
                return None
            self._known[name] = value
        return self._known[name]

    def version(self) -> str | None:
        """ "TLSv1.2" or "TLSv1.3"; None: before the handshake."""
        number = self._ask("VERSION")
        return None if number is None else VERSIONS.get(number, f"{number:#06x}")

    def cipher(self) -> tuple[str, str, int] | None:
        """(OpenSSL's name, version, bits of its key)."""
        name, version = self._ask("CIPHER"), self.version()
        if name is None or version is None:
            return None
        return name, version, _bits(name)

    def selected_alpn_protocol(self) -> str | None:
        """The protocol that was agreed on; None: none was."""
        return self._ask("ALPN") or None

    def selected_npn_protocol(self) -> None:
        """None: ALPN has replaced it."""

    def compression(self) -> None:
        """None: there is none."""

    @property
    def server_hostname(self) -> str | None:
        """The name that the client asked for."""
        return self._ask("SERVER_NAME") or None

    @property
    def session_reused(self) -> bool:
        """Was an earlier session resumed?"""
        return bool(self._ask("RESUMED"))

    @property
    def verified(self) -> bool:
        """Was the peer's certificate checked, and is it good?"""
        return bool(self._ask("VERIFIED"))

    @property
    def crypto(self) -> Crypto | None:
        """What encrypts and decrypts in the proxy, and why."""
        send, receive = self._ask("CRYPTO_SEND"), self._ask("CRYPTO_RECEIVE")
        if not send or not receive:
            return None
        return Crypto(CRYPTO.get(send, str(send)), CRYPTO.get(receive, str(receive)), self._ask("CRYPTO_REASON") or "")

    @property
    def context(self) -> ssl.SSLContext:
        """A context that stands for these parameters: `xts_socket.ssl_context()`."""
        from ._tls_context import ssl_context

        return ssl_context(self.layer)

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The peer's certificate: DER, or a dict as ssl.SSLSocket.getpeercert() gives, {} when it was not verified.
        None: the peer has sent none."""
        certificate = self._ask("PEER_CERTIFICATE")
        if not certificate or binary_form:
            return certificate or None
        return decoded_certificate(certificate) if self.verified else {}

    def get_unverified_chain(self) -> list[bytes]:
        """The certificates that the peer has sent, its own first, each in DER (as in ssl since Python 3.13)."""
        return list(_split(self._ask("PEER_CHAIN") or b""))


def _bits(cipher: str) -> int:
    """Of the key, by the cipher's name."""
    if "CHACHA20" in cipher:
        return 256
    found = re.search(r"AES_?(128|256)", cipher)
    return int(found[1]) if found else 0


def _split(chain: bytes) -> list[bytes]:
    """Splits a sequence of DER values: each has its length in its first bytes."""
    found = []
    while len(chain) > 2:
        head, length = 2, chain[1]
        if length & 0x80:
            head += length & 0x7F
            length = int.from_bytes(chain[2:head], "big")
        found.append(chain[: head + length])
        chain = chain[head + length :]
    return found


def decoded_certificate(der: bytes) -> dict[str, Any]:
    """The dict form of a certificate. The standard library makes it only for a connection's peer, or from a file: so
    the certificate is put into a file in memory."""
    import ssl

    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        path = Path(f"/proc/self/fd/{file}")
        path.write_text(ssl.DER_cert_to_PEM_cert(der))
        found: dict[str, Any] = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
        return found
    finally:
        os.close(file)
