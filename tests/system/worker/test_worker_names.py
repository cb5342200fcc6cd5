"""Lookups of names by the worker: what it passes on, which answers it believes, whom it asks next, what they cost."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import dns.message
import dns.rcode
import pytest
from beds.name_server import HUGE, IPV4, MANY, ZONE, NameServer, query
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.share import goodbye
from xts_lab.free_ports import free_port
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame
from xts_proxy._native import ffi
from xts_proxy.config.config_names import Domain

NAMES = table.FEATURES["NAMES"][0] | table.FEATURES["REFUSAL"][0]
LOOPBACK = "127.0.0.1"


def endpoint(port: int, address: str = LOOPBACK) -> dict[str, Any]:
    packed = socket.inet_aton(address) if "." in address else socket.inet_pton(socket.AF_INET6, address)
    return {"ip_version": 6 if ":" in address else 4, "port": port, "address": list(packed.ljust(16, b"\0"))}


def names(*ports: int, rules: Any = None, **changes: Any) -> dict[str, Any]:
    """struct xts_names_config, with servers on these ports of loopback."""
    fields = {"default_allow": True, "timeout_ms": 3000, "attempts": 2, "families": 3}
    if rules is not None:
        fields |= {"rules": rules, "rule_count": len(rules)}
    return fields | {"resolver_count": len(ports), "resolvers": [endpoint(port) for port in ports]} | changes


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer() as made:
        yield made


def attached(worker: Worker, epoch: int = 0x1234, **how: Any) -> ScriptedHost:
    return worker.attach(epoch, features=NAMES, **how).open()


def ask(host: ScriptedHost, message: bytes, token: int = 7) -> Frame:
    host.send("XTS_CMD_QUERY_NAME", message, token=token)
    reply = host.expect("XTS_REPLY_NAME_ACK")
    assert reply.fields["token"] == token
    return reply


def addresses(reply: Frame) -> list[str]:
    """In an answer that came."""
    assert reply.error == 0, errno.errorcode.get(reply.error)
    return [str(item) for records in dns.message.from_wire(reply.payload).answer for item in records]


def test_an_answer_comes_back_with_the_hosts_id(server: NameServer) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        message = query(f"Host.{ZONE}", id=4711)
        reply = ask(host, message)
        assert addresses(reply) == [IPV4]
        assert reply.payload[:2] == message[:2]
        assert reply.fields["families"] == 3
        stats = worker.stats()
        assert (stats.names_asked, stats.names_answered, stats.names_failed, stats.lookups) == (1, 1, 0, 0)


def test_each_query_has_a_port_and_an_id_of_its_own(server: NameServer) -> None:
    """RFC 5452: who does not see them has to guess both."""
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        for _ in range(40):
            assert addresses(ask(host, query(f"host.{ZONE}", id=1))) == [IPV4]
    assert len({port for *_, port in server.asked}) > 30
    assert len(set(server.ids)) > 30


@pytest.mark.parametrize("what", ["wrongid", "wrongquestion", "garbage"])
def test_what_is_no_answer_is_dropped(server: NameServer, what: str) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        assert addresses(ask(host, query(f"{what}.{ZONE}"))) == [IPV4]
        assert worker.stats().names_wrong
    assert server.questions() == [(f"{what}.{ZONE}", "A", "udp")]


def test_an_answer_of_somebody_else_is_not_seen(server: NameServer) -> None:
    with Worker(name_servers=names(server.port, timeout_ms=150)) as worker, attached(worker) as host:
        assert ask(host, query(f"wrongsource.{ZONE}")).error == errno.ETIMEDOUT
        assert worker.stats().names_wrong == 0


def test_after_many_wrong_answers_the_server_is_asked_over_tcp(server: NameServer) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        assert addresses(ask(host, query(f"flood.{ZONE}"))) == [IPV4]
        assert worker.stats().names_wrong == 16
    assert [transport for *_, transport in server.questions()] == ["udp", "tcp"]


@pytest.mark.parametrize("what", ["many", "pieces"])
def test_a_truncated_answer_is_asked_for_over_tcp(server: NameServer, what: str) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        assert len(addresses(ask(host, query(f"{what}.{ZONE}")))) == MANY
    assert [transport for *_, transport in server.questions()] == ["udp", "tcp"]


def test_datagrams_are_not_to_be_longer_than_what_is_not_fragmented(server: NameServer) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        assert len(addresses(ask(host, query(f"many.{ZONE}", use_edns=0, payload=65000)))) == MANY
    assert [transport for *_, transport in server.questions()] == ["udp", "tcp"]


def test_an_answer_that_no_message_holds_is_refused(server: NameServer) -> None:
    with Worker(name_servers=names(server.port, timeout_ms=5000)) as worker, attached(worker) as host:
        assert HUGE * 16 > table.FRAME_BYTES_MAX
        assert ask(host, query(f"huge.{ZONE}")).error == errno.EMSGSIZE
        assert addresses(ask(host, query(f"host.{ZONE}"))) == [IPV4]
        assert worker.used("socket_bytes") == 0


@pytest.mark.parametrize("what", ["cutoff", "tcpsilent"])
def test_a_server_that_fails_over_tcp_is_left(server: NameServer, what: str) -> None:
    with (
        NameServer() as second,
        Worker(name_servers=names(server.port, second.port, timeout_ms=500, attempts=1)) as worker,
    ):
        with attached(worker) as host:
            assert ask(host, query(f"{what}.{ZONE}")).error in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
        assert [transport for *_, transport in second.questions()] == ["udp", "tcp"]


def test_a_silent_server_is_asked_as_often_as_configured(server: NameServer) -> None:
    with Worker(name_servers=names(server.port, timeout_ms=150)) as worker, attached(worker) as host:
        begun = time.monotonic()
        assert ask(host, query(f"silent.{ZONE}")).error == errno.ETIMEDOUT
        assert 0.28 < time.monotonic() - begun < 5
        assert worker.stats().names_failed == 1
    assert len(server.asked) == 2


def test_the_next_server_is_asked(server: NameServer) -> None:
    with NameServer() as second:
        for what in ("servfail", "refused", "silent"):
            second.asked.clear()
            with (
                Worker(name_servers=names(server.port, second.port, timeout_ms=150)) as worker,
                attached(worker) as host,
            ):
                ask(host, query(f"{what}.{ZONE}"))
            assert second.asked
        with Worker(name_servers=names(free_port(), second.port)) as worker, attached(worker) as host:
            assert addresses(ask(host, query(f"host.{ZONE}"))) == [IPV4]


def test_what_the_last_server_says_is_passed_on(server: NameServer) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        for what, expected in (("servfail", dns.rcode.SERVFAIL), ("absent", dns.rcode.NXDOMAIN)):
            reply = ask(host, query(f"{what}.{ZONE}"))
            assert reply.error == 0 and dns.message.from_wire(reply.payload).rcode() == expected


def test_where_nobody_can_be_reached() -> None:
    with Worker(name_servers=names(free_port())) as worker, attached(worker) as host:
        assert ask(host, query(f"host.{ZONE}")).error == errno.EHOSTUNREACH


def test_servers_of_both_families() -> None:
    with NameServer("::1") as server:
        fields = names() | {"resolver_count": 1, "resolvers": [endpoint(server.port, "::1")]}
        with Worker(name_servers=fields) as worker, attached(worker) as host:
            assert addresses(ask(host, query(f"host.{ZONE}"))) == [IPV4]


def with_bytes(message: bytes, at: int, *values: int) -> bytes:
    changed = bytearray(message)
    changed[at : at + len(values)] = bytes(values)
    return bytes(changed)


PLAIN = query(f"host.{ZONE}")
BAD_QUERIES = {
    "nothing": b"",
    "only a header": PLAIN[:12],
    "an answer": with_bytes(PLAIN, 2, 0x81),
    "an update": with_bytes(PLAIN, 2, 0x29),
    "truncated": with_bytes(PLAIN, 2, 0x03),
    "a result": with_bytes(PLAIN, 3, 0x03),
    "two questions": with_bytes(PLAIN, 4, 0, 2) + PLAIN[12:],
    "no question": with_bytes(PLAIN, 4, 0, 0)[:12],
    "an answer section": with_bytes(PLAIN, 6, 0, 1),
    "an authority section": with_bytes(PLAIN, 8, 0, 1),
    "a record that is not there": with_bytes(PLAIN, 10, 0, 1),
    "a record that is not OPT": with_bytes(PLAIN, 10, 0, 1) + b"\0" + struct.pack(">HHIH", 1, 1, 0, 0),
    "bytes after the question": PLAIN + b"x",
    "bytes after OPT": query(f"host.{ZONE}", use_edns=0) + b"x",
    "cut in the name": PLAIN[:15],
    "cut in the type": PLAIN[:-3],
    "class CH": PLAIN[:-2] + struct.pack(">H", 3),
    "AXFR": PLAIN[:-4] + struct.pack(">HH", 252, 1),
    "IXFR": PLAIN[:-4] + struct.pack(">HH", 251, 1),
    "a pointer in the name": PLAIN[:12] + b"\xc0\x0c" + PLAIN[-4:],
    "a name too long": PLAIN[:12] + (b"\x3f" + b"a" * 63) * 4 + b"\0" + PLAIN[-4:],
}


@pytest.mark.parametrize("what", BAD_QUERIES)
def test_only_standard_queries_are_passed_on(server: NameServer, what: str) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        assert ask(host, BAD_QUERIES[what]).error == errno.EINVAL
        assert addresses(ask(host, PLAIN)) == [IPV4]
    assert len(server.asked) == 1


def test_a_query_of_more_bytes_breaks_the_protocol(server: NameServer) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        host.send("XTS_CMD_QUERY_NAME", bytes(1025), token=1)
        assert host.wait_down() == errno.EPROTO


def rules(*given: tuple[bool, int, str]) -> Any:
    made = ffi.new("struct xts_name_rule[]", len(given))
    for (allow, tenant, domain), rule in zip(given, made, strict=True):
        wire = Domain.parse(domain).wire if domain else b""
        rule.allow, rule.tenant, rule.domain_bytes = allow, tenant, len(wire)
        ffi.memmove(rule.domain, wire, len(wire))
    return made


def test_who_may_look_up_what(server: NameServer) -> None:
    one, two = make_tenant("one", 0), make_tenant("two", 1)
    anybody = 0xFFFFFFFF
    given = rules((True, 1, "host.example.test"), (False, anybody, "example.test"), (False, 0, ""))
    with Worker(name_servers=names(server.port, rules=given)) as worker:
        with attached(worker, 1, tenant=one) as first, attached(worker, 2, tenant=two) as second:
            for host, name, expected in (
                (first, f"host.{ZONE}", errno.EACCES),
                (first, "elsewhere.", errno.EACCES),
                (second, f"HOST.{ZONE}", 0),
                (second, f"below.host.{ZONE}", 0),
                (second, f"ghost.{ZONE}", errno.EACCES),
                (second, f"xhost.{ZONE}", errno.EACCES),
                (second, "Example.Test.", errno.EACCES),
                (second, "xexample.test.", 0),
                (second, "test.", 0),
            ):
                reply = ask(host, query(name))
                assert reply.error == expected, name
                if expected:
                    assert reply.refusal == table.REFUSALS["NAME_POLICY"][0]
        assert worker.stats().names_denied == 5


def test_without_servers_hosts_are_not_offered_it() -> None:
    with Worker() as worker, attached(worker) as host:
        assert not host.link.features & table.FEATURES["NAMES"][0]
        host.send("XTS_CMD_QUERY_NAME", PLAIN, token=1)
        assert host.wait_down() == errno.EPROTO


def test_lookups_are_limited_per_tenant_and_process_and_end_with_their_channel(server: NameServer) -> None:
    tenant = make_tenant(lookups=130)
    with Worker(name_servers=names(server.port, timeout_ms=60_000), tenant=tenant) as worker:
        with attached(worker, 1) as host, attached(worker, 2) as other:
            for token in range(128):
                host.send("XTS_CMD_QUERY_NAME", query(f"silent.{ZONE}"), token=token)
            reply = ask(host, PLAIN)
            assert (reply.error, reply.refusal) == (errno.ENOBUFS, table.REFUSALS["LOOKUPS"][0])
            for token in range(2):
                other.send("XTS_CMD_QUERY_NAME", query(f"silent.{ZONE}"), token=token)
            assert ask(other, PLAIN).error == errno.ENOBUFS
            # frame credits are not what is missing: other calls go on
            assert host.connect(LOOPBACK, server.port)[1].error == 0
            assert worker.used("lookups") == worker.stats().lookups == 130
            goodbye(host)
            worker.wait(lambda s: s.lookups == 2, "lookups of a process that has gone")
            assert worker.used("lookups") == 2


def test_a_slow_server_keeps_nobody_waiting(server: NameServer) -> None:
    with Worker(name_servers=names(server.port, timeout_ms=5000)) as worker, attached(worker) as host:
        host.send("XTS_CMD_QUERY_NAME", query(f"slow.{ZONE}"), token=1)
        assert addresses(ask(host, PLAIN, 2)) == [IPV4]
        slow = host.expect("XTS_REPLY_NAME_ACK")
        assert slow.fields["token"] == 1 and addresses(slow) == [IPV4]


def test_a_worker_that_is_to_stop_looks_nothing_up(server: NameServer) -> None:
    with Worker(name_servers=names(server.port)) as worker, attached(worker) as host:
        worker.drain()
        assert ask(host, PLAIN).refusal == table.REFUSALS["STOPPING"][0]
