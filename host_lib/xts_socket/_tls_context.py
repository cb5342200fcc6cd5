"""`ssl_context(tls)`: an `ssl.SSLContext` that stands for TLS in the proxy.

Libraries take an SSLContext and pass it to the code that makes the connection. With this one, `Tls` is pushed onto the
connection, and the library continues with a socket, or transport, of plain text: `wrap_socket()` (http.client, urllib3,
smtplib, imaplib, …), event loops (aiohttp, uvicorn, …; _tls_on_loops.py). Only offloaded connections can use it: a
library that wants TLS in memory is refused, and that is told on standard error, too. Trust roots and
certificates are named in the parameters, since the proxy has them: methods that would load them here are refused.

What a program sets on the context afterwards goes into the parameters, or is refused: a context that only remembered
`verify_mode` or `minimum_version` would be taken for one that demands them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from ._create import as_client, as_server
from ._interposed_pushing import is_interposed, push_by_descriptor
from ._misuse import named, wanted
from ._native import lib
from ._once_per_run import once_per_run
from ._pushing import PushingSocket
from .layers import Tls

_VERIFY: dict[ssl.VerifyMode, Any] = {
    ssl.CERT_NONE: False,
    ssl.CERT_OPTIONAL: "optional",
    ssl.CERT_REQUIRED: True,
}
_CRL_CHECKS = ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_CRL_CHECK_CHAIN


def _from_minimum(version: int) -> dict[str, Any]:
    if version == ssl.TLSVersion.MAXIMUM_SUPPORTED:
        version = ssl.TLSVersion.TLSv1_3
    # None where it is older than all that the proxy has.
    return {"min_version": int(version) if version >= ssl.TLSVersion.TLSv1_2 else None}


def _from_maximum(version: int) -> dict[str, Any]:
    if version == ssl.TLSVersion.MAXIMUM_SUPPORTED:
        return {"max_version": None}
    if version < ssl.TLSVersion.TLSv1_2:
        raise ValueError("maximum_version: the proxy has TLS 1.2 and 1.3")
    return {"max_version": int(version)}


def _from_options(options: int) -> dict[str, Any]:
    limits = {}
    if options & ssl.OP_NO_TLSv1_2:
        limits["min_version"] = int(ssl.TLSVersion.TLSv1_3)
    if options & ssl.OP_NO_TLSv1_3:
        limits["max_version"] = int(ssl.TLSVersion.TLSv1_2)
    return limits


#: Attributes of a context, and the parameters that they become.
_PARAMETERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "verify_mode": lambda mode: {"verify": _VERIFY[mode]},
    "minimum_version": _from_minimum,
    "maximum_version": _from_maximum,
    "options": _from_options,
}

#: Attributes that have no parameter: whether a value demands something, and what has it instead.
_REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sni_callback": (bool, "a server with several certificates names them: Tls(identity=(…, …))"),
    "keylog_filename": (bool, "the keys of connections are the proxy's"),
    "verify_flags": (lambda flags: flags & _CRL_CHECKS, "revocation lists are in the proxy's configuration"),
}


class OffloadedContext(ssl.SSLContext):
    """Made by `ssl_context()`. `tls`: the layer that is pushed."""

    tls: Tls
    _own_alpn: bool

    def __setattr__(self, name: str, value: Any) -> None:
        demands, instead = _REFUSED.get(name, (lambda _: False, ""))
        if demands(value):
            raise ValueError(f"{name} cannot be set for TLS in the proxy: {instead}")
        super().__setattr__(name, value)
        if name in _PARAMETERS and "tls" in self.__dict__:
            self.tls = replace(self.tls, **_PARAMETERS[name](value))

    def set_ciphers(self, cipherlist: str, /) -> None:
        super().set_ciphers(cipherlist)  # raises for what is no list
        self.tls = replace(self.tls, ciphers=cipherlist)

    def set_servername_callback(self, server_name_callback: Any) -> None:
        self.sni_callback = server_name_callback

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Libraries call this on their context: accepted, unless the parameters name protocols."""
        if not self._own_alpn:
            self.tls = replace(self.tls, alpn=tuple(alpn_protocols))

    def wrap_socket(  # type: ignore[override]
        self, sock: Any, server_side: bool = False, *_: Any, server_hostname: str | None = None, **__: Any
    ) -> Any:
        """Pushes TLS onto a socket of xts_socket, of install(), or of a program under the interposer, and returns it.
        ValueError for a kernel socket. Blocks for the handshake, if the socket is connected and not non-blocking."""
        tls = as_server(self.tls) if server_side else as_client(self.tls, server_hostname)
        ours = getattr(sock, "_ours", sock)  # for a socket of install()
        if isinstance(ours, PushingSocket):
            ours.push(tls)
        elif not is_interposed(sock) or not push_by_descriptor(sock, [tls]):
            raise ValueError(f"{sock!r} is not offloaded: there can be no TLS in the proxy for it")
        return sock

    def wrap_bio(self, *_: Any, **__: Any) -> NoReturn:
        text = (
            "a context of xts_socket.ssl_context() stands for TLS in the proxy, and was asked for TLS in this process "
            "(wrap_bio): this library, or event loop, cannot use it"
        )
        if once_per_run(lib.ONCE_WRAP_BIO):  # the caller may be a callback, whose exception nobody sees
            lib.xts_py_notice(text.encode())
        raise ValueError(text)

    def load_verify_locations(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError("trust roots are the proxy's: name one of its configuration with Tls(ca=…)")

    def load_cert_chain(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError("certificates and keys are the proxy's: name one of its configuration with Tls(identity=…)")


@named
def ssl_context(tls: Tls | bool = True) -> OffloadedContext:
    """A context for libraries that take one: connections of xts_socket that use it have TLS done in the proxy.

    tls: parameters; True: those of a client that checks the server's certificate for the name to which it connects.
    """
    if tls is True:
        tls = Tls()
    if not isinstance(tls, Tls):
        raise wanted("tls", "Tls() or True", tls)
    from ._tls_on_loops import teach_loops

    teach_loops()
    context = OffloadedContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.verify in (False, "optional"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE if tls.verify is False else ssl.CERT_OPTIONAL
    context.tls = tls
    context._own_alpn = bool(tls.alpn)
    return context
