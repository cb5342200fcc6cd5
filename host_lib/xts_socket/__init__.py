"""Offloaded TCP and UDP sockets: an application's socket calls carried out by an offload proxy on a SmartNIC or DPU.

`import xts_socket as socket` works for ordinary TCP and UDP code: the `socket` class, `create_connection`,
`create_server`, `fromfd` and similar functions are ours, every other name is the standard module's. In addition:
`epoll` for many sockets, `info()` and `configure()` for this process's attachment, and the paper's functions by name
(`xts_socket`, `xts_connect`, ...).

`install()` makes the standard module's sockets offloaded by rules, for code that does not know this package; `with
offload():` does so for a block. `wrap_ssl()` is TLS over an offloaded socket. `with dev():` starts an offload proxy for
a block.

Protocols that the proxy does above TCP are pushed: `sock.push(Tls(), Http2())`, `create_connection(address, tls=True)`;
`ulps()` lists them, layers.py has their parameters. `Multiplexer` is one message socket over several connections.

Names are looked up by the device; addresses and interfaces are the device's, too. `socketpair` gives sockets of the
kernel; for families other than AF_INET and AF_INET6 use the standard module, or `install()`.
"""

from __future__ import annotations

import socket as _standard
from socket import (
    AF_INET,
    AF_INET6,
    AF_UNSPEC,
    AI_PASSIVE,
    INADDR_ANY,
    IPPROTO_IP,
    IPPROTO_IPV6,
    IPPROTO_TCP,
    IPV6_V6ONLY,
    MSG_DONTWAIT,
    MSG_EOR,
    MSG_MORE,
    MSG_NOSIGNAL,
    MSG_PEEK,
    MSG_TRUNC,
    MSG_WAITALL,
    SHUT_RD,
    SHUT_RDWR,
    SHUT_WR,
    SO_BROADCAST,
    SO_ERROR,
    SO_KEEPALIVE,
    SO_LINGER,
    SO_RCVBUF,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SO_SNDBUF,
    SO_TYPE,
    SOCK_CLOEXEC,
    SOCK_NONBLOCK,
    SOCK_SEQPACKET,
    SOCK_STREAM,
    SOL_SOCKET,
    SOMAXCONN,
    TCP_CONGESTION,
    TCP_CORK,
    TCP_INFO,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_MAXSEG,
    TCP_NODELAY,
    TCP_QUICKACK,
    TCP_USER_TIMEOUT,
    AddressFamily,
    SocketIO,
    SocketKind,
    gaierror,
    getdefaulttimeout,
    gethostname,
    getservbyname,
    getservbyport,
    has_ipv6,
    herror,
    htonl,
    htons,
    inet_aton,
    inet_ntoa,
    inet_ntop,
    inet_pton,
    ntohl,
    ntohs,
    setdefaulttimeout,
)
from typing import Any

from xts_messages.version import __version__ as __version__

from ._create import create_connection, create_server, fromfd, has_dualstack_ipv6
from ._descriptor import close, dup
from ._epoll import epoll
from ._errors import UlpError
from ._names import getaddrinfo, getfqdn, gethostbyaddr, gethostbyname, gethostbyname_ex, getnameinfo
from ._paper import (
    xts_accept,
    xts_bind,
    xts_close,
    xts_connect,
    xts_epoll,
    xts_epoll_ctl,
    xts_epoll_ctx_create,
    xts_epoll_ctx_destroy,
    xts_fcntl,
    xts_fileno,
    xts_getpeername,
    xts_getsockname,
    xts_getsockopt,
    xts_ioctl,
    xts_listen,
    xts_recv,
    xts_recvfrom,
    xts_recvmsg,
    xts_send,
    xts_sendmsg,
    xts_sendto,
    xts_setsockopt,
    xts_socket,
)
from ._socket import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._clock import SO_XTS_CLOCK, SOL_XTS, XTS_CLOCK_DEVICE, XTS_CLOCK_HOST
    from ._dev import dev
    from ._error_with_reason import WithReason
    from ._filter import SO_XTS_FILTER
    from ._info import SPIN_NEVER, Info, configure, info
    from ._install import install, offload, uninstall
    from ._interfaces import Interface, interfaces
    from ._passing import send_fds
    from ._reason import Reason, reasons
    from ._receive_callback import Packet, PacketVerdict
    from ._ssl import wrap_ssl
    from ._stack import Stack, stack_of
    from ._tls import TlsConnection
    from ._tls_context import ssl_context
    from ._tls_errors import CertificateError, TlsError
    from ._ulp import LayerInfo, Offer, ulps
    from .control import (
        DnsHeader,
        GrpcMessage,
        Http2Frame,
        KernelTlsRecordType,
        NvmePdu,
        Pdu,
        TlsRecordHeader,
        TlsRecordType,
    )
    from .layers import (
        BpfParser,
        Dns,
        Grpc,
        Http2,
        Layer,
        LengthPrefixed,
        Lines,
        Mpa,
        NvmeTcp,
        StreamParser,
        Tls,
        TlsKeys,
        TlsRecords,
    )
    from .multiplexer import Multiplexer

SocketType = socket
error = OSError
timeout = TimeoutError

__all__ = [
    "AF_INET",
    "AF_INET6",
    "AF_UNSPEC",
    "AI_PASSIVE",
    "INADDR_ANY",
    "IPPROTO_IP",
    "IPPROTO_IPV6",
    "IPPROTO_TCP",
    "IPV6_V6ONLY",
    "MSG_DONTWAIT",
    "MSG_EOR",
    "MSG_MORE",
    "MSG_NOSIGNAL",
    "MSG_PEEK",
    "MSG_TRUNC",
    "MSG_WAITALL",
    "SHUT_RD",
    "SHUT_RDWR",
    "SHUT_WR",
    "SOCK_CLOEXEC",
    "SOCK_NONBLOCK",
    "SOCK_SEQPACKET",
    "SOCK_STREAM",
    "SOL_SOCKET",
    "SOL_XTS",
    "SOMAXCONN",
    "SO_BROADCAST",
    "SO_ERROR",
    "SO_KEEPALIVE",
    "SO_LINGER",
    "SO_RCVBUF",
    "SO_REUSEADDR",
    "SO_REUSEPORT",
    "SO_SNDBUF",
    "SO_TYPE",
    "SO_XTS_CLOCK",
    "SO_XTS_FILTER",
    "SPIN_NEVER",
    "TCP_CONGESTION",
    "TCP_CORK",
    "TCP_INFO",
    "TCP_KEEPCNT",
    "TCP_KEEPIDLE",
    "TCP_KEEPINTVL",
    "TCP_MAXSEG",
    "TCP_NODELAY",
    "TCP_QUICKACK",
    "TCP_USER_TIMEOUT",
    "XTS_CLOCK_DEVICE",
    "XTS_CLOCK_HOST",
    "AddressFamily",
    "BpfParser",
    "CertificateError",
    "Dns",
    "DnsHeader",
    "Grpc",
    "GrpcMessage",
    "Http2",
    "Http2Frame",
    "Info",
    "Interface",
    "KernelTlsRecordType",
    "Layer",
    "LayerInfo",
    "LengthPrefixed",
    "Lines",
    "Mpa",
    "Multiplexer",
    "NvmePdu",
    "NvmeTcp",
    "Offer",
    "Packet",
    "PacketVerdict",
    "Pdu",
    "Reason",
    "SocketIO",
    "SocketKind",
    "SocketType",
    "Stack",
    "StreamParser",
    "Tls",
    "TlsConnection",
    "TlsError",
    "TlsKeys",
    "TlsRecordHeader",
    "TlsRecordType",
    "TlsRecords",
    "UlpError",
    "WithReason",
    "close",
    "configure",
    "create_connection",
    "create_server",
    "dev",
    "dup",
    "epoll",
    "error",
    "fromfd",
    "gaierror",
    "getaddrinfo",
    "getdefaulttimeout",
    "getfqdn",
    "gethostbyaddr",
    "gethostbyname",
    "gethostbyname_ex",
    "gethostname",
    "getnameinfo",
    "getservbyname",
    "getservbyport",
    "has_dualstack_ipv6",
    "has_ipv6",
    "herror",
    "htonl",
    "htons",
    "inet_aton",
    "inet_ntoa",
    "inet_ntop",
    "inet_pton",
    "info",
    "install",
    "interfaces",
    "ntohl",
    "ntohs",
    "offload",
    "reasons",
    "send_fds",
    "setdefaulttimeout",
    "socket",
    "ssl_context",
    "stack_of",
    "timeout",
    "ulps",
    "uninstall",
    "wrap_ssl",
    "xts_accept",
    "xts_bind",
    "xts_close",
    "xts_connect",
    "xts_epoll",
    "xts_epoll_ctl",
    "xts_epoll_ctx_create",
    "xts_epoll_ctx_destroy",
    "xts_fcntl",
    "xts_fileno",
    "xts_getpeername",
    "xts_getsockname",
    "xts_getsockopt",
    "xts_ioctl",
    "xts_listen",
    "xts_recv",
    "xts_recvfrom",
    "xts_recvmsg",
    "xts_send",
    "xts_sendmsg",
    "xts_sendto",
    "xts_setsockopt",
    "xts_socket",
]

__all__ += [name for name in _standard.__all__ if name not in __all__]

#: The names of the standard module: its public ones, and some others that programs use nevertheless.
_STANDARD = {*_standard.__all__, "AddressInfo", "MsgFlag", "EBADF", "EAGAIN", "EWOULDBLOCK"}

#: Modules of this package that programs import.
_MODULES = ("adapters", "aio", "anyio", "control", "layers", "multiplexer", "trio")

#: Names that are imported on first use, since importing them takes longer than everything else here.
_LATER = {
    **dict.fromkeys(("SPIN_NEVER", "Info", "configure", "info"), "_info"),
    **dict.fromkeys(("Stack", "stack_of"), "_stack"),
    "dev": "_dev",
    "WithReason": "_error_with_reason",
    "SO_XTS_FILTER": "_filter",
    **dict.fromkeys(("install", "offload", "uninstall"), "_install"),
    "send_fds": "_passing",
    **dict.fromkeys(("Reason", "reasons"), "_reason"),
    **dict.fromkeys(("Packet", "PacketVerdict"), "_receive_callback"),
    "wrap_ssl": "_ssl",
    "TlsConnection": "_tls",
    "ssl_context": "_tls_context",
    "Multiplexer": "multiplexer",
    **dict.fromkeys(("CertificateError", "TlsError"), "_tls_errors"),
    **dict.fromkeys(("LayerInfo", "Offer", "ulps"), "_ulp"),
    **dict.fromkeys(("Interface", "interfaces"), "_interfaces"),
    **dict.fromkeys(("SOL_XTS", "SO_XTS_CLOCK", "XTS_CLOCK_DEVICE", "XTS_CLOCK_HOST"), "_clock"),
    **dict.fromkeys(
        ("DnsHeader", "GrpcMessage", "Http2Frame", "KernelTlsRecordType", "NvmePdu", "Pdu", "TlsRecordHeader"),
        "control",
    ),
    "TlsRecordType": "control",
    **dict.fromkeys(
        ("BpfParser", "Dns", "Grpc", "Http2", "Layer", "LengthPrefixed", "Lines", "Mpa", "NvmeTcp", "StreamParser"),
        "layers",
    ),
    **dict.fromkeys(("Tls", "TlsKeys", "TlsRecords"), "layers"),
}


def __getattr__(name: str) -> Any:
    """Imports names that are imported on first use, and returns the other names of the standard module."""
    if name in _LATER:
        from importlib import import_module

        value: Any = getattr(import_module(f".{_LATER[name]}", __name__), name)
    elif name in _MODULES:
        from importlib import import_module

        try:
            value = import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:  # for example trio: without it there is no such attribute
            raise AttributeError(f"{__name__}.{name} is not available: {error}", name=name) from error
    elif name in _STANDARD or (name[:1] == "_" != name[1:2] and hasattr(_standard, name)):
        value = getattr(_standard, name)  # also private names, which CPython's own tests use: _LOCALHOST
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})
