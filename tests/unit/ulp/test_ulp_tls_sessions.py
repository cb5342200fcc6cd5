"""TLS as a layer: which sessions are resumed."""

from __future__ import annotations

import errno
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from beds.authority import Authority, Issued
from beds.ulp_tls import (
    AUTHORITY,
    ONE_THREE,
    ONE_TWO,
    PEER,
    RESUMED,
    SERVER,
    VERIFIED,
    VERSIONS,
    TlsBed,
    TlsPeer,
    bed,
    client_context,
    counts,
    exchange,
    server_context,
)
from hypothesis import given as examples_of
from hypothesis import settings
from hypothesis import strategies as st
from xts_proxy._native import lib
from xts_proxy.upgrade.handover import private_memory

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


# --- of one server, several at a time ---------------------------------------------------------------------


def resumed_of(bed: TlsBed, context: ssl.SSLContext, count: int) -> int:
    """How many of so many connections resume that begin before one of them has ended its handshake."""
    resumed = 0
    with ExitStack() as stack:
        begun = []
        for _ in range(count):
            other = stack.enter_context(bed.again())
            other.push("TLS", server_name="localhost")
            other.start(client=True)
            other.handshake()
            begun.append(other)
        for other in begun:
            exchange(other, other.shake(TlsPeer(other, context, server=True)))
            resumed += other.tell(RESUMED) == b"\1"
    return resumed


@VERSIONS
def test_connections_that_begin_at_a_time_resume(bed: TlsBed, version: ssl.TLSVersion) -> None:
    """A ticket of TLS 1.3 is used once, and a server gives out two with each connection: more than one is kept."""
    context = server_context(SERVER, maximum_version=version)
    assert [resumed_of(bed, context, 4), resumed_of(bed, context, 4)] == [0, 4]


def test_a_server_has_few_of_the_sessions(bed: TlsBed) -> None:
    """And a failure ends them all."""
    context = server_context(SERVER)
    for _ in range(2):
        resumed_of(bed, context, 10)
    assert resumed_of(bed, context, 20) == 8
    with bed.again() as other:
        other.push("TLS", server_name="localhost")
        exchange(other, other.connect_to(context))
        other.peer_send(b"\x17\3\3\0\x20" + bytes(32))
        with pytest.raises(OSError):
            other.read_all()
    assert resumed_of(bed, context, 1) == 0


# --- by session ID ----------------------------------------------------------------------------------------


def without_tickets(issued: Issued | None = None) -> ssl.SSLContext:
    """A client of TLS 1.2 that knows session IDs only (no RFC 5077)."""
    context = client_context(AUTHORITY.certificate, issued, maximum_version=ONE_TWO)
    context.options |= ssl.OP_NO_TICKET
    return context


def served(bed: TlsBed, context: ssl.SSLContext, session: Any, *, queue_id: int = 1, **push: object) -> TlsPeer:
    """Another connection from this client, that asks for this session; what it has says `session` and `reused`."""
    with bed.again(queue_id=queue_id) as other:
        other.push("TLS", **{"identity": "server"} | push)  # type: ignore[arg-type]
        peer = other.accept_from(context, session=session)
        exchange(other, peer)
        assert (other.tell(RESUMED) == b"\1") == peer.tls.session_reused
    return peer


def test_server_resumes_by_session_id(bed: TlsBed) -> None:
    """Whatever the queue, again and again, and with new data each time."""
    context = without_tickets()
    first = served(bed, context, None)
    assert first.tls.session and not first.tls.session.has_ticket and not first.tls.session_reused
    for queue_id in (1, 2, 1):
        assert served(bed, context, first.tls.session, queue_id=queue_id).tls.session_reused


def test_a_clients_certificate_is_in_its_session(bed: TlsBed) -> None:
    context = without_tickets(issued := AUTHORITY.issue("client.example"))
    session = None
    for expected in (False, True):
        with bed.again() as other:
            other.push("TLS", identity="server", verify=2, trust="default")
            peer = other.accept_from(context, session=session)
            exchange(other, peer)
            session = peer.tls.session
            assert peer.tls.session_reused == expected
            assert other.tell(PEER) == issued.der and other.tell(VERIFIED) == b"\1"


@pytest.mark.parametrize(
    "push", [{"no_resumption": True}, {"verify": 2, "trust": "default"}, {"alpn": "h2"}, {"identity": "other"}]
)
def test_a_session_is_for_its_parameters(bed: TlsBed, push: dict[str, object]) -> None:
    bed.add_identity("other", AUTHORITY.issue("localhost"))
    context = without_tickets(AUTHORITY.issue("client.example"))
    session = served(bed, context, None).tls.session
    assert not served(bed, context, session, **push).tls.session_reused


def test_sessions_of_servers_are_bounded(bed: TlsBed) -> None:
    """The oldest goes; and one is enough to show that the rest are whole."""
    bed.configure(sessions_max=3)
    context = without_tickets()
    sessions = [served(bed, context, None).tls.session for _ in range(5)]
    assert [served(bed, context, session).tls.session_reused for session in sessions[2:]] == [True] * 3
    assert not served(bed, context, sessions[0]).tls.session_reused


def test_a_session_ends_with_its_time(bed: TlsBed) -> None:
    bed.configure(session_timeout_s=1)
    context = without_tickets()
    session = served(bed, context, None).tls.session
    while time.time() <= session.time + 2.1:  # OpenSSL's clock is a tick late
        time.sleep(0.1)
    assert not served(bed, context, session).tls.session_reused


def test_a_session_of_a_failed_connection_is_not_resumed(bed: TlsBed) -> None:
    """RFC 5246 7.2.2."""
    context = without_tickets()
    with bed.again() as other:
        other.push("TLS", identity="server")
        peer = other.accept_from(context)
        exchange(other, peer)
        session = peer.tls.session
        other.peer_send(b"\x17\3\3\0\x20" + bytes(32))
        with pytest.raises(OSError):
            other.read_all()
    assert not served(bed, context, session).tls.session_reused


# --- over reloads, and upgrades --------------------------------------------------------------------------------------


RENEWED = AUTHORITY.issue("localhost")


def reloaded(before: TlsBed, identity: Issued = SERVER, roots: bytes = b"", **settings: Any) -> TlsBed:
    """A bed of the configuration that comes after this one."""
    after = of_next(before, identity, roots, **settings)
    lib.xts_tls_come_after(after.config, before.config)
    return after


def of_next(before: TlsBed, identity: Issued = SERVER, roots: bytes = b"", **settings: Any) -> TlsBed:
    after = TlsBed(records=before.records)
    if settings:
        after.configure(**settings)
    after.add_trust("default", roots or AUTHORITY.certificate)
    after.add_identity("server", identity)
    return after


def given(bed: TlsBed) -> bytes:
    """What sessions of this bed's configuration are resumed from, for another process."""
    with private() as memory:
        count = lib.xts_tls_resumption_give(bed.config, memory)
        assert count == os.fstat(memory).st_size
        return os.pread(memory, count, 0)


def take(bed: TlsBed, data: bytes) -> int:
    with private() as memory:
        os.write(memory, data)
        os.lseek(memory, 0, os.SEEK_SET)
        return int(lib.xts_tls_resumption_take(bed.config, memory, len(data)))


@contextmanager
def private() -> Iterator[int]:
    memory = private_memory()
    try:
        yield memory
    finally:
        os.close(memory)


def taken_over(before: TlsBed, **change: Any) -> TlsBed:
    """A bed as in the process that takes over, with a configuration that it has read itself."""
    after = of_next(before, **change)
    assert take(after, given(before)) > 0
    return after


HOW = pytest.mark.parametrize("how", [reloaded, taken_over])


#: What a reload changes, and whether sessions are resumed after it.
CHANGES = pytest.mark.parametrize(
    ("change", "resumes"),
    [
        ({}, True),
        ({"identity": RENEWED}, False),
        ({"roots": AUTHORITY.certificate + Authority("another").certificate}, False),
        ({"ciphers": "ECDHE+AESGCM", "ciphersuites": "TLS_AES_256_GCM_SHA384"}, False),
        ({"sessions_max": 7}, False),
        ({"rekey_records": 100}, True),
    ],
    ids=["nothing", "the certificate", "the roots", "the ciphers", "how many sessions", "something else"],
)


def kept(how: Callable[..., TlsBed], change: dict[str, Any], resumes: bool) -> bool:
    """An upgrade keeps them also where the next configuration keeps another number."""
    return resumes or (how is taken_over and "sessions_max" in change)


def how_it_begins(kind: str) -> ssl.SSLContext:
    """A client that resumes by tickets of 1.2 or 1.3, or by session IDs."""
    version = ONE_THREE if kind == "ticket of 1.3" else ONE_TWO
    context = client_context(AUTHORITY.certificate, SERVER, maximum_version=version)
    if kind == "ID":
        context.options |= ssl.OP_NO_TICKET
    return context


@HOW
@CHANGES
@pytest.mark.parametrize("kind", ["ticket of 1.2", "ticket of 1.3", "ID"])
def test_a_server_after_it(
    bed: TlsBed, kind: str, change: dict[str, Any], resumes: bool, how: Callable[..., TlsBed]
) -> None:
    """It verifies clients, so it depends on the roots, too."""
    context, resumes = how_it_begins(kind), kept(how, change, resumes)
    with bed.again() as other:
        other.push("TLS", identity="server", verify=2, trust="default")
        exchange(other, peer := other.accept_from(context))
        session = peer.tls.session
    with how(bed, **change) as after:
        after.push("TLS", identity="server", verify=2, trust="default")
        exchange(after, peer := after.accept_from(context, session=session))
        assert (after.tell(RESUMED), peer.tls.session_reused) == ((b"\1", True) if resumes else (b"\0", False))


@HOW
@CHANGES
@pytest.mark.parametrize("kind", ["ticket of 1.2", "ticket of 1.3", "ID"])
def test_a_client_after_it(
    bed: TlsBed, kind: str, change: dict[str, Any], resumes: bool, how: Callable[..., TlsBed]
) -> None:
    resumes = kept(how, change, resumes)
    context = server_context(SERVER, maximum_version=ONE_THREE if kind == "ticket of 1.3" else ONE_TWO)
    if kind == "ID":
        context.options |= ssl.OP_NO_TICKET
    with bed.again() as other:
        other.push("TLS", server_name="localhost", identity="server")
        exchange(other, peer := other.connect_to(context))
    with how(bed, **change) as after:
        after.push("TLS", server_name="localhost", identity="server")
        exchange(after, after.connect_to(context))
        assert after.tell(RESUMED) == (b"\1" if resumes else b"\0")
        assert after.tell(VERIFIED) == b"\1" and after.tell(PEER) == SERVER.der
    assert peer.done, "OpenSSL forgets its session with it"


def test_a_failure_after_a_reload_is_heeded(bed: TlsBed) -> None:
    """A connection that began before it fails after it: nobody resumes its session (RFC 5246 7.2.2)."""
    context = how_it_begins("ID")
    with ExitStack() as stack:
        first = stack.enter_context(bed.again())
        first.push("TLS", identity="server")
        exchange(first, peer := first.accept_from(context))
        session = peer.tls.session
        after = stack.enter_context(reloaded(bed))
        first.peer_send(b"\x17\3\3\0\x20" + bytes(32))  # no record of its keys
        with pytest.raises(OSError):
            first.read_all()
        after.push("TLS", identity="server")
        exchange(after, after.accept_from(context, session=session))
        assert after.tell(RESUMED) == b"\0"


def test_the_configuration_before_may_go_first_or_last(bed: TlsBed) -> None:
    context, session = how_it_begins("ticket of 1.2"), None
    beds = [bed.again()]
    for _ in range(4):
        beds.append(reloaded(beds[-1]))
        if len(beds) % 2:
            beds.pop(0).close()
        beds[-1].push("TLS", identity="server")
        exchange(beds[-1], peer := beds[-1].accept_from(context, session=session))
        assert peer.tls.session_reused == (session is not None)
        session = peer.tls.session
    for one in reversed(beds):
        one.close()


def test_a_client_of_another_tenant_after_an_upgrade(bed: TlsBed) -> None:
    """A tenant is known by its name: its number may be another one's in the next process."""
    context = server_context(SERVER)

    def resumed(of: TlsBed, tenant: int, name: bytes) -> bytes:
        with of.again(tenant=tenant, name=name) as other:
            other.push("TLS", server_name="localhost")
            exchange(other, other.connect_to(context))
            return other.tell(RESUMED)

    assert resumed(bed, 1, b"shop") == b"\0"
    with taken_over(bed) as after:
        assert [resumed(after, 1, b"web"), resumed(after, 2, b"shop")] == [b"\0", b"\1"]


def test_no_session_lasts_longer_than_here(bed: TlsBed) -> None:
    """Whatever the process before says: how long is this configuration's to say."""
    context = server_context(SERVER, maximum_version=ONE_TWO)
    with bed.again() as other:
        other.push("TLS", server_name="localhost")
        exchange(other, other.connect_to(context))
    with of_next(bed, session_timeout_s=1) as after:
        assert take(after, given(bed)) >= 1
        time.sleep(2)
        after.push("TLS", server_name="localhost")
        exchange(after, after.connect_to(context))
        assert after.tell(RESUMED) == b"\0"


def test_no_more_sessions_than_here(bed: TlsBed) -> None:
    context = server_context(SERVER, maximum_version=ONE_TWO)
    for name in ("a.example", "b.example", "c.example"):
        with bed.again() as other:
            other.push("TLS", server_name=name, verify=0)
            exchange(other, other.connect_to(context))
    resumed = []
    with of_next(bed, sessions_max=1) as after:
        take(after, given(bed))
        for name in ("c.example", "b.example"):
            with after.again() as other:
                other.push("TLS", server_name=name, verify=0)
                exchange(other, other.connect_to(context))
                resumed.append(other.tell(RESUMED))
    with of_next(bed, sessions_max=0) as after:
        assert take(after, given(bed)) == 0
    assert resumed == [b"\1", b"\0"]


@settings(max_examples=30, deadline=None)
@examples_of(st.data())
def test_what_is_taken_over_is_not_believed(data: st.DataObject) -> None:
    """Bytes that another process has changed: they are refused, or sessions that are none are left out; and the next
    handshake goes well."""
    with TlsBed() as before, of_next(before) as after:
        before.add_trust("default", AUTHORITY.certificate)
        before.add_identity("server", SERVER)
        for context in (how_it_begins("ticket of 1.3"), how_it_begins("ID")):
            with before.again() as other:
                other.push("TLS", identity="server")
                exchange(other, other.accept_from(context))
        with before.again() as other:
            other.push("TLS", server_name="localhost")
            exchange(other, other.connect_to(server_context(SERVER)))
        changed = bytearray(given(before))
        for _ in range(data.draw(st.integers(1, 4))):  # its length is not always the same
            changed[data.draw(st.integers(0, 9999)) % len(changed)] = data.draw(st.integers(0, 255))
        cut = len(changed) * data.draw(st.integers(50, 100)) // 100
        taken = take(after, bytes(changed[:cut]))
        assert taken == -errno.EBADMSG or 0 <= taken <= 5
        after.push("TLS", server_name="localhost")
        exchange(after, after.connect_to(server_context(SERVER)))
