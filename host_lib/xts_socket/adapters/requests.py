"""requests, and urllib3 below it: `session.mount("https://", XtsAdapter())`; `session()` returns one with this done.

urllib3 is given the classes of connections (PoolManager.pool_classes_by_scheme, ConnectionCls), and their contexts the
class of sockets (SSLContext.sslsocket_class).
"""

from __future__ import annotations

import os
import socket as _standard
import sys
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs, resolve_ssl_version
from urllib3.util.timeout import Timeout

from .. import create_connection
from .._ssl import SSLSocket
from .._tls_context import OffloadedContext, ssl_context
from ..layers import Tls


def _connect(connection: HTTPConnection) -> Any:
    """Does what urllib3's _new_conn() does, with the same errors."""
    timeout = connection.timeout
    arguments: dict[str, Any] = {"source_address": connection.source_address}
    if timeout is not None and not isinstance(timeout, int | float):
        timeout = Timeout.resolve_default_timeout(timeout)
    arguments["timeout"] = timeout
    try:
        sock = create_connection((connection.host.strip("[]"), connection.port or connection.default_port), **arguments)
        try:
            for option in connection.socket_options or ():
                sock.setsockopt(*option)
        except BaseException:
            sock.close()
            raise
    except _standard.gaierror as failure:
        raise NameResolutionError(connection.host, connection, failure) from failure
    except TimeoutError as failure:
        text = f"Connection to {connection.host} timed out. (connect timeout={connection.timeout})"
        raise ConnectTimeoutError(connection, text) from failure
    except OSError as failure:
        raise NewConnectionError(connection, f"Failed to establish a new connection: {failure}") from failure
    sys.audit("http.client.connect", connection, connection.host, connection.port)
    return sock


class XtsHTTPConnection(HTTPConnection):
    def _new_conn(self) -> Any:
        return _connect(self)


class XtsHTTPSConnection(HTTPSConnection):
    def _new_conn(self) -> Any:
        return _connect(self)

    def connect(self) -> None:
        if self.ssl_context is None:
            self.ssl_context = create_urllib3_context(
                resolve_ssl_version(self.ssl_version),
                resolve_cert_reqs(self.cert_reqs),
                ssl_minimum_version=self.ssl_minimum_version,
                ssl_maximum_version=self.ssl_maximum_version,
            )
            if not (self.ca_certs or self.ca_cert_dir or self.ca_cert_data):
                self.ssl_context.load_default_certs()
        if not isinstance(self.ssl_context, OffloadedContext):
            self.ssl_context.sslsocket_class = SSLSocket  # which also takes kernel sockets
        super().connect()


class XtsHTTPConnectionPool(HTTPConnectionPool):
    ConnectionCls = XtsHTTPConnection


class XtsHTTPSConnectionPool(HTTPSConnectionPool):
    ConnectionCls = XtsHTTPSConnection


#: The variables from which requests takes `verify` if a program does not set it.
_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

POOLS = {"http": XtsHTTPConnectionPool, "https": XtsHTTPSConnectionPool}


class XtsPoolManager(PoolManager):
    """urllib3.PoolManager over offloaded sockets. tls: the proxy does TLS, with these parameters, or (True) those of a
    client that checks the server's certificate."""

    def __init__(self, *arguments: Any, tls: Tls | bool = False, **named: Any) -> None:
        if tls:
            named["ssl_context"] = ssl_context(tls)
        super().__init__(*arguments, **named)
        self.pool_classes_by_scheme = POOLS


class XtsAdapter(HTTPAdapter):
    """requests' adapter over offloaded sockets, also through HTTP proxies. tls: as for `XtsPoolManager`; then the
    requests' `verify` and `cert` have no meaning, and are refused if they are set (ValueError)."""

    def __init__(self, *arguments: Any, tls: Tls | bool = False, **named: Any) -> None:
        self._context = ssl_context(tls) if tls else None
        super().__init__(*arguments, **named)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **pool_kwargs)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        manager.pool_classes_by_scheme = POOLS
        return manager

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        host, options = super().build_connection_pool_key_attributes(request, verify, cert)
        if self._context is None:
            return host, options
        return host, {"ssl_context": self._context, "cert_reqs": self._context.verify_mode.name}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        if self._context is None:
            super().cert_verify(conn, url, verify, cert)
        elif cert or verify not in (True, *(os.environ.get(name) for name in _CA_VARIABLES)):
            raise ValueError("verify and cert are not for TLS in the proxy: Tls(ca=…, verify=…, identity=…) is")


def session(tls: Tls | bool = False) -> requests.Session:
    """A session in which all connections are offloaded. tls: as for `XtsAdapter`."""
    made = requests.Session()
    for scheme in ("http://", "https://"):
        made.mount(scheme, XtsAdapter(tls=tls))
    return made
