"""Peers of a TLS listener: half handshakes, silence, key updates without end; and a host that pushes TLS again and
again."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beds.authority import Authority
from beds.ulp_tls import client_context
from oracles.tls_records import BY_NAME, HANDSHAKE, KEY_UPDATE, Sealer, Secret
from xts_messages.wire.codec import Endpoint, flags

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT = 7201
PUSHES = 20  # between two looks whether to stop
_BATCH = 16
_WINDOW = 1 << 16
_SUITE = BY_NAME["aes-256-gcm"]


def _identities(folder: Path, peer_address: str) -> str:
    """A proxy with identities that this attack's own authority has issued, one for each kind of key."""
    del peer_address
    tables = []
    for kind in ("ec", "rsa"):
        issued = Authority().issue("localhost", kind=kind)
        certificate, key = folder / f"{kind}.pem", folder / f"{kind}.key"
        certificate.write_bytes(issued.certificate)
        key.write_bytes(issued.key)
        key.chmod(0o600)
        tables.append(f'[[tls.identity]]\nname = "{kind}"\ncertificate = "{certificate}"\nkey = "{key}"\n')
    return "".join(tables)


def _listen(script: Script, kind: str) -> None:
    """The listener of an innocent host, which takes every connection and reads nothing."""
    with hostile_host(script, "ULP") as host:
        number = host.new_socket()
        # The last round's connections, which the proxy ended first, keep the port.
        option = {"level": socket.SOL_SOCKET, "option": socket.SO_REUSEADDR, "length": 4}
        host.send("XTS_CMD_SETSOCKOPT", struct.pack("i", 1), xts_socket=number, token=1, domain=4, **option)
        made: Any = host.expect("XTS_REPLY_SOCKOPT_ACK").fields
        id = made["proxy_id"]
        local = Endpoint.of(script.place.device_address, PORT)
        host.send("XTS_CMD_BIND", id=id, xts_socket=number, domain=4, local=local)
        bound = host.expect("XTS_REPLY_BIND_ACK")
        assert not bound.error, f"bind: {bound}"
        host.push("TLS", id, number, message=False, identity=kind)
        host.send("XTS_CMD_LISTEN", id=id, xts_socket=number, post_credits=64, backlog=1000)
        host.expect("XTS_REPLY_LISTEN_ACK")
        script.under_way()
        while not script.stopped:
            with suppress(TimeoutError):
                frame = host.receive(100)
                if frame.name != "XTS_REPLY_NEWCONN":
                    continue
                taken: Any = {"id": frame.fields["proxy_id"], "xts_socket": host.new_socket()}
                host.send("XTS_CMD_NEWCONN_ACK", post_credits=_WINDOW, **taken)
                host.send("XTS_CMD_SEND", id=id, post_credits=1)
                script.done["handshakes"] += 1


def _dial(script: Script) -> socket.socket:
    return socket.create_connection((script.place.device_address, PORT), 5)


def _half_handshakes(script: Script) -> None:
    """A ClientHello each, and reset when the answer comes."""
    outgoing = ssl.MemoryBIO()
    client = client_context(None).wrap_bio(ssl.MemoryBIO(), outgoing, False, "localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    while not script.stopped:
        with ExitStack() as stack:
            begun = [stack.enter_context(_dial(script)) for _ in range(_BATCH)]
            for one in begun:
                one.sendall(hello)
            for one in begun:
                with suppress(OSError):
                    script.done["half_handshakes"] += bool(one.recv(1))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        script.under_way()


def _silent(script: Script) -> None:
    """As many as a listener has room for, and more of them all the time."""
    kept: list[socket.socket] = []
    while not script.stopped:
        with suppress(OSError):
            kept.append(_dial(script))
            script.done["silent_connections"] += 1
        if len(kept) > 300:
            script.under_way()
            kept.pop(0).close()


def _update_records(secret: bytes, count: int) -> bytes:
    now = Secret(_SUITE, secret)
    records = []
    for _ in range(count):
        records.append(Sealer(now.keys())(KEY_UPDATE, HANDSHAKE))
        now = now.next()
    return b"".join(records)


def _key_updates(script: Script) -> None:
    """A whole handshake, and then nothing but key updates until the connection ends."""
    keylog = Path(script.place.folder) / "keylog"
    while not script.stopped:
        keylog.unlink(missing_ok=True)
        context = client_context(None, keylog_filename=str(keylog))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, False, "localhost")
        with _dial(script) as peer, suppress(OSError):
            done = False
            while not done:
                with suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                    done = True
                peer.sendall(outgoing.read())
                if not done:
                    incoming.write(peer.recv(65536))
            lines = [line.split() for line in keylog.read_text().splitlines()]
            secret = next(line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
            peer.sendall(_update_records(bytes.fromhex(secret), script.size(1000)))
            script.done["floods"] += 1
            while peer.recv(65536):
                pass
        script.under_way()


def _new_alpn(number: int) -> dict[str, str]:
    return {"alpn": f"p{number}"}


def _new_ciphers(number: int) -> dict[str, str]:
    """A list that OpenSSL reads for longest: each word is about all ciphers, and a name nobody knows makes it new."""
    return {"ciphers": f"p{number}:{'ALL:+HIGH:-RSA:' * 28}ECDHE+AESGCM"}


def _pushes(script: Script, new: Callable[[int], dict[str, str]]) -> None:
    """TLS with parameters that were not there before, onto a socket that is then closed."""
    with hostile_host(script, "ULP") as host:
        while not script.stopped:
            for _ in range(script.size(PUSHES)):
                number = host.new_socket()
                ack: Any = host.push("TLS", number=number, message=False, role=1, verify=0, **new(number))
                host.send("XTS_CMD_SEND", id=ack.fields["proxy_id"], flags=flags("CLOSE"))
                host.expect("XTS_REPLY_RECV")
                script.done["pushes"] += not ack.error
            script.under_way()


_LISTENER = Part("host", partial(_listen, kind="ec"))
_RSA_LISTENER = Part("host", partial(_listen, kind="rsa"))
ATTACKS = [
    Attack(
        "tls-half-handshakes",
        "ClientHellos, reset when the answer comes",
        (_LISTENER, Part("net", _half_handshakes)),
        _identities,
    ),
    Attack("tls-half-rsa", "the same with an RSA key", (_RSA_LISTENER, Part("net", _half_handshakes)), _identities),
    Attack(
        "tls-silence",
        "300 connections that say nothing, and ever new ones",
        (_LISTENER, Part("net", _silent)),
        _identities,
    ),
    Attack(
        "tls-key-updates",
        "handshakes followed by 1,000 key updates",
        (_LISTENER, Part("net", _key_updates)),
        _identities,
    ),
    Attack(
        "tls-new-pushes",
        "pushes of TLS with ever new ALPN",
        (Part("host", partial(_pushes, new=_new_alpn)),),
        _identities,
    ),
    Attack(
        "tls-new-ciphers",
        "pushes of TLS with ever new lists of ciphers, as long as they can be",
        (Part("host", partial(_pushes, new=_new_ciphers)),),
        _identities,
    ),
]
