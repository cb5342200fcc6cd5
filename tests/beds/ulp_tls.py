"""TLS on a stack of its own (ulp.py), and Python's ssl as the peer: no threads, no other sockets, no waiting.

bed = TlsBed()
bed.add_trust("default", authority.certificate)
bed.push("TLS", server_name="localhost")
peer = bed.connect_to(server_context(authority.issue("localhost")))
assert peer.recv() == ...
"""

from __future__ import annotations

import _ssl
import ctypes
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
from xts_proxy._native import ffi, lib

from beds.authority import Authority, Issued
from beds.patience import SLOWER
from beds.ready import any_readable, readable
from beds.ulp import UlpBed

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("localhost", "127.0.0.1")
#: What a stack tells about TLS.
VERSION, CIPHER, ALPN, PEER, CHAIN, RESUMED, SEND_BY, RECEIVE_BY, NAME, REASON, VERIFIED = range(1, 12)
ONE_TWO, ONE_THREE = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
#: Who has the records once the handshake is done: our record layer, or OpenSSL (enum xts_tls_records).
OURS, OPENSSL = 0, 1
CARRIERS = {"ours": OURS, "openssl": OPENSSL}
VERSIONS = pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE])

_WHY_BYTES = 256
#: UINT32_MAX of tls_config.h.
ANY_TENANT = 0xFFFFFFFF
_HANDSHAKE_S = 10 * SLOWER


def server_context(*issued: Issued, **settings: Any) -> ssl.SSLContext:
    """A peer that is a server; settings are attributes of SSLContext."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for one in issued:
        one.load_into(context)
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def client_context(roots: bytes | None, issued: Issued | None = None, **settings: Any) -> ssl.SSLContext:
    """A peer that is a client; roots None: it verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if roots is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=roots.decode())
    if issued:
        issued.load_into(context)
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def _of_openssl(context: ssl.SSLContext) -> ctypes.c_void_p:
    """Its SSL_CTX, for what Python's ssl has no name for: CPython's object holds it behind its head."""
    return ctypes.c_void_p.from_address(id(context) + object.__basicsize__)


def asks_for_short_records(context: ssl.SSLContext, bytes_: int) -> ssl.SSLContext:
    """The peer, a client, asks for records of at most 512, 1024, 2048 or 4096 bytes (RFC 6066 4)."""
    mode = {512: 1, 1024: 2, 2048: 3, 4096: 4}[bytes_]
    library = ctypes.CDLL(_ssl.__file__)
    assert library.SSL_CTX_set_tlsext_max_fragment_length(_of_openssl(context), ctypes.c_uint8(mode)) == 1
    return context


def takes_signatures(context: ssl.SSLContext, names: str) -> ssl.SSLContext:
    """The peer verifies only by these algorithms, in OpenSSL's words: rsa_pss_pss_sha384:ed25519."""
    library, set_list = ctypes.CDLL(_ssl.__file__), 98
    assert library.SSL_CTX_ctrl(_of_openssl(context), set_list, ctypes.c_long(0), names.encode()) == 1
    return context


def updates_keys(tls: ssl.SSLObject, *, asks: bool) -> None:
    """Its next write begins with a KeyUpdate."""
    raw = ctypes.c_void_p.from_address(id(tls._sslobj) + object.__basicsize__ + 8)  # type: ignore[attr-defined]
    assert ctypes.CDLL(_ssl.__file__).SSL_key_update(raw, ctypes.c_int(asks)) == 1


class TlsPeer:
    """Python's ssl at the peer's end."""

    def __init__(
        self, bed: UlpBed, context: ssl.SSLContext, *, server: bool, name: str | None = None, session: Any = None
    ) -> None:
        self.bed = bed
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server, name, session)
        self.done = False

    def push(self) -> None:
        """What it has to say goes onto the wire."""
        if data := self.outgoing.read():
            self.bed.peer_send(data)

    def pull(self) -> None:
        """What came over the wire is its."""
        if data := self.bed.peer_recv():
            self.incoming.write(data)

    def handshake(self) -> bool:
        """As far as it goes; ssl.SSLError, after its alert has left, when it fails."""
        self.pull()
        try:
            self.tls.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self.push()
        return self.done

    def send(self, data: bytes) -> None:
        """Records that fit into the socket buffer."""
        self.tls.write(data)
        self.push()

    def recv(self) -> bytes:
        """All that has come."""
        self.pull()
        received = bytearray()
        try:
            while data := self.tls.read(1 << 16):
                received += data
        except ssl.SSLWantReadError:
            pass
        finally:
            self.push()
        return bytes(received)

    def records(self) -> Iterator[bytes]:
        """The same, record by record."""
        self.pull()
        while True:
            try:
                yield self.tls.read(1 << 14)
            except ssl.SSLWantReadError:
                return

    def close_notify(self) -> None:
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        finally:
            self.push()


def asks_for_name(peer: TlsPeer, name: str) -> TlsPeer:
    """The peer, a client, asks for a name (SNI) that Python's ssl would refuse, or change."""
    library, set_name = ctypes.CDLL(_ssl.__file__), 55
    of_openssl = ctypes.c_void_p.from_address(id(peer.tls._sslobj) + object.__basicsize__ + 8)  # type: ignore[attr-defined]
    assert library.SSL_ctrl(of_openssl, set_name, ctypes.c_long(0), name.encode()) == 1
    return peer


class TlsBed(UlpBed):
    """A stack with a configuration of TLS."""

    peer_tls: TlsPeer
    tenant_name: Any = None  # alive as long as this

    def __init__(self, *, message_socket: bool = False, records: int = OURS, **owner: Any) -> None:
        super().__init__(message_socket=message_socket, **owner)
        self.records = records
        if records != OURS:
            self.configure()

    def _told(self, result: int, why: Any) -> None:
        if result:
            raise OSError(-result, ffi.string(why).decode())

    def configure(self, **settings: Any) -> None:
        """struct xts_tls_settings; the rest are defaults."""
        c, why = ffi.new("struct xts_tls_settings *"), ffi.new("char[]", _WHY_BYTES)
        lib.xts_tls_defaults(c)
        c.records = self.records
        texts = []  # alive until the call is over
        for name, value in settings.items():
            if isinstance(value, str):
                texts.append(ffi.new("char[]", value.encode()))
            setattr(c, name, texts[-1] if isinstance(value, str) else value)
        self._told(lib.xts_tls_configure(self.config, c, why, _WHY_BYTES), why)

    def add_identity(
        self, name: str, issued: Issued, *, ocsp: bytes = b"", queues: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        why = ffi.new("char[]", _WHY_BYTES)
        certificate, key = issued.certificate, issued.key
        result = lib.xts_tls_add_identity(
            self.config, name.encode(), certificate, len(certificate), key, len(key), ocsp or ffi.NULL, len(ocsp),
            [[*pair, ANY_TENANT][:3] for pair in queues], len(queues), why, _WHY_BYTES
        )  # fmt: skip
        self._told(result, why)

    def add_trust(
        self, name: str, roots: bytes, *, crls: bytes = b"", queues: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        why = ffi.new("char[]", _WHY_BYTES)
        result = lib.xts_tls_add_trust(
            self.config, name.encode(), roots, len(roots), crls or ffi.NULL, len(crls),
            [[*pair, ANY_TENANT][:3] for pair in queues], len(queues), why, _WHY_BYTES
        )  # fmt: skip
        self._told(result, why)

    def probe_kernel(self) -> str:
        """Why the kernel does no TLS; "" when it does."""
        why = ffi.new("char[]", _WHY_BYTES)
        failed = lib.xts_tls_probe_kernel(self.config, why, _WHY_BYTES)
        return ffi.string(why).decode() if failed else ""

    def over_tcp(self, accepted: socket.socket | None = None) -> None:
        """Our end is a TCP socket: one whose other end is `peer`, or one that somebody has connected."""
        self.local.close()
        self.peer.close()
        if accepted is None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.peer = socket.create_connection(listener.getsockname())
                accepted = listener.accept()[0]
            self.peer.settimeout(5 * SLOWER)
        self.local = accepted
        self.local.setblocking(False)

    def wait(self, timeout_s: float = 5 * SLOWER) -> None:
        """For something at our end."""
        assert readable(self.local, timeout_s), "nothing comes"

    # --- handshakes

    def shake(self, peer: TlsPeer) -> TlsPeer:
        """Both ends to the end of the handshake. OSError: ours failed; ssl.SSLError: the peer's did."""
        ours, deadline = self.handshake(), time.monotonic() + _HANDSHAKE_S
        while not (ours and peer.done):
            assert time.monotonic() < deadline, "the handshake does not end"
            if not peer.done:
                peer.handshake()
            if not ours:
                ours = self.handshake()
            if not (ours and peer.done):  # the kernel's TLS sends and decrypts when it gets to it
                any_readable((self.local, self.peer), 0.05)
        return peer

    def connect_to(self, context: ssl.SSLContext) -> TlsPeer:
        """We are the client, which has been pushed; the peer serves."""
        self.start(client=True)
        return self.shake(TlsPeer(self, context, server=True))

    def accept_from(self, context: ssl.SSLContext, name: str | None = "localhost", session: Any = None) -> TlsPeer:
        """We are the server."""
        self.start(client=False)
        return self.shake(TlsPeer(self, context, server=False, name=name, session=session))

    def again(self, *, queue_id: int = 1, tenant: int = 0, name: bytes = b"") -> TlsBed:
        """Another connection of the same configuration, which is shared. `name`: of the tenant."""
        other = TlsBed(message_socket=self.message_socket, queue_id=queue_id)
        lib.xts_ulp_config_hold(self.config)
        lib.xts_ulp_config_release(other.config)
        lib.ulp_stack_free(other.stack)
        other.config = self.config
        other.owner.config, other.owner.tenant = self.config, tenant
        other.tenant_name = ffi.new("char[]", name)
        other.owner.tenant_name = other.tenant_name
        out = ffi.new("struct ulp_stack **")
        assert lib.ulp_stack_new(out, other.owner) == 0
        other.stack = out[0]
        return other


def counts() -> dict[str, int]:
    """struct xts_tls_counts, of this process."""
    c = ffi.new("struct xts_tls_counts *")
    lib.xts_tls_counts(c)
    return {name: int(getattr(c, name)) for name, _ in ffi.typeof(c[0]).fields}


@pytest.fixture(params=CARRIERS)
def bed(request: pytest.FixtureRequest) -> Iterator[TlsBed]:
    """It trusts the authority, and has the server's identity."""
    with TlsBed(records=CARRIERS[request.param]) as made:
        made.add_trust("default", AUTHORITY.certificate)
        made.add_identity("server", SERVER)
        yield made


def exchange(bed: TlsBed, peer: TlsPeer) -> None:
    """A message each way."""
    assert bed.write(b"from the proxy") == 14
    assert peer.recv() == b"from the proxy"
    peer.send(b"from the peer")
    assert b"".join(pdu.data for pdu in bed.read_all()) == b"from the peer"
