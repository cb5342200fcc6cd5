"""TLS as a layer: which sessions are resumed."""

from __future__ import annotations

import ssl

import pytest
from beds.ulp_tls import (
    AUTHORITY,
    ONE_TWO,
    PEER,
    RESUMED,
    SERVER,
    VERIFIED,
    VERSIONS,
    TlsBed,
    bed,
    client_context,
    counts,
    exchange,
    server_context,
)
from xts_proxy._native import lib

__all__ = ["bed"]  # fixture


@VERSIONS
def test_client_resumes(bed: TlsBed, version: ssl.TLSVersion) -> None:
    context = server_context(SERVER, maximum_version=version)
    resumed = []
    for _ in range(3):
        with bed.again() as other:
            other.push("TLS", server_name="localhost")
            peer = other.connect_to(context)
            exchange(other, peer)
            resumed.append((other.tell(RESUMED), peer.tls.session_reused))
            assert other.tell(VERIFIED) == b"\1" and other.tell(PEER) == SERVER.der
    assert resumed == [(b"\0", False), (b"\1", True), (b"\1", True)]


def test_client_resumes_by_session_id(bed: TlsBed) -> None:
    """Of a server of TLS 1.2 that gives out no tickets; and shakes hands as ever where the server has forgotten."""
    context = server_context(SERVER, maximum_version=ONE_TWO)
    context.options |= ssl.OP_NO_TICKET
    resumed, peers = [], []
    for _ in range(3):
        with bed.again() as other:
            other.push("TLS", server_name="localhost")
            peers.append(peer := other.connect_to(context))
            exchange(other, peer)
            assert peer.tls.session and not peer.tls.session.has_ticket
            resumed.append((other.tell(RESUMED), peer.tls.session_reused))
            assert other.tell(VERIFIED) == b"\1" and other.tell(PEER) == SERVER.der
    assert resumed == [(b"\0", False), (b"\1", True), (b"\1", True)]
    another = server_context(SERVER, maximum_version=ONE_TWO)
    another.options |= ssl.OP_NO_TICKET
    for expected in (b"\0", b"\1"):
        with bed.again() as other:
            other.push("TLS", server_name="localhost")
            peers.append(peer := other.connect_to(another))
            exchange(other, peer)
            assert other.tell(RESUMED) == expected


@pytest.mark.parametrize(
    "different",
    [
        {"queue_id": 2},
        {"server_name": "127.0.0.1"},
        {"trust": "other"},
        {"verify": 0},
        {"identity": "server"},
        {"alpn": "h2"},
        {"no_resumption": True},
    ],
)
def test_client_resumes_nothing_of_others(bed: TlsBed, different: dict[str, object]) -> None:
    bed.add_trust("other", AUTHORITY.certificate)
    context = server_context(SERVER)
    parameters = {"server_name": "localhost"} | different
    queue_id = parameters.pop("queue_id", 1)
    with bed.again() as first:
        first.push("TLS", server_name="localhost")
        exchange(first, first.connect_to(context))
    with bed.again(queue_id=queue_id) as second:  # type: ignore[arg-type]
        second.push("TLS", **parameters)  # type: ignore[arg-type]
        exchange(second, second.connect_to(context))
        assert second.tell(RESUMED) == b"\0"


def test_sessions_are_bounded(bed: TlsBed) -> None:
    bed.configure(sessions_max=2)
    names = ["a.example", "b.example", "c.example"]
    context = server_context(AUTHORITY.issue(*names))
    before = counts()["resumed"]
    for name in [*names, *names]:  # each has been pushed out when it is its turn
        with bed.again() as other:
            other.push("TLS", server_name=name)
            exchange(other, other.connect_to(context))
    assert counts()["resumed"] == before
    with bed.again() as other:
        other.push("TLS", server_name="c.example")
        exchange(other, other.connect_to(context))
        assert other.tell(RESUMED) == b"\1"


@VERSIONS
def test_server_resumes(bed: TlsBed, version: ssl.TLSVersion) -> None:
    """By tickets, whatever the queue: the processes of one server have several."""
    context, session = client_context(AUTHORITY.certificate, maximum_version=version), None
    for queue_id in (1, 2):
        with bed.again(queue_id=queue_id) as other:
            other.push("TLS", identity="server")
            peer = other.accept_from(context, session=session)
            exchange(other, peer)
            assert other.tell(RESUMED) == (b"\1" if session else b"\0")
            session = peer.tls.session


@VERSIONS
@pytest.mark.parametrize("why", ["parameter", "configuration"])
def test_no_resumption(bed: TlsBed, version: ssl.TLSVersion, why: str) -> None:
    if why == "configuration":
        bed.configure(sessions_max=0)
    context, session = client_context(AUTHORITY.certificate, maximum_version=version), None
    for _ in range(2):
        with bed.again() as other:
            other.push("TLS", identity="server", no_resumption=why == "parameter")
            peer = other.accept_from(context, session=session)
            exchange(other, peer)
            session = peer.tls.session
            assert other.tell(RESUMED) == b"\0" and (version == ONE_TWO or not session.has_ticket)


def test_server_resumes_nothing_with_other_demands(bed: TlsBed) -> None:
    """A session that began without a certificate of the client's does not get around one."""
    context = client_context(AUTHORITY.certificate, AUTHORITY.issue("client.example"))
    with bed.again() as first:
        first.push("TLS", identity="server")
        peer = first.accept_from(context)
        exchange(first, peer)
        session = peer.tls.session
    bed.push("TLS", identity="server", verify=2, trust="default")
    exchange(bed, bed.accept_from(context, session=session))
    assert bed.tell(RESUMED) == b"\0" and bed.tell(VERIFIED) == b"\1"


def contexts(bed: TlsBed) -> int:
    return int(lib.xts_tls_contexts(bed.config))


@pytest.mark.parametrize("role", [{"role": 1, "server_name": "localhost"}, {"role": 2, "identity": "server"}])
def test_pushes_with_ever_new_alpn_make_nothing_new(bed: TlsBed, role: dict[str, object]) -> None:
    """What OpenSSL makes slowly is shared by all that differ in what a connection can be told by itself."""
    for i in range(50):
        with bed.again() as other:
            other.push("TLS", **role, alpn=f"protocol-{i}")  # type: ignore[arg-type]
    assert contexts(bed) == 1


def test_servers_that_differ_in_alpn_share_no_sessions(bed: TlsBed) -> None:
    context = client_context(AUTHORITY.certificate, maximum_version=ONE_TWO)
    context.set_alpn_protocols(["h2", "http/1.1"])
    session, resumed = None, []
    for alpn in ("h2", "http/1.1", "http/1.1"):
        with bed.again() as other:
            other.push("TLS", identity="server", alpn=alpn)
            peer = other.accept_from(context, session=session)
            assert peer.tls.selected_alpn_protocol() == alpn
            exchange(other, peer)
            resumed.append(peer.tls.session_reused)
            session = peer.tls.session
    assert resumed == [False, False, True]
    assert contexts(bed) == 1


def test_a_client_without_tickets_shakes_hands_again(bed: TlsBed) -> None:
    """TLS 1.2 with session IDs only (no RFC 5077): the server keeps no sessions. Nothing fails by that."""
    context = client_context(AUTHORITY.certificate, maximum_version=ONE_TWO)
    context.options |= ssl.OP_NO_TICKET
    session = None
    for _ in range(2):
        with bed.again() as other:
            other.push("TLS", identity="server")
            peer = other.accept_from(context, session=session)
            exchange(other, peer)
            assert other.tell(RESUMED) == b"\0" and not peer.tls.session_reused
            session = peer.tls.session
