"""The policy matcher of the workers (C) against the rules as the file says them (Python, ipaddress)."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xts_proxy._native import ffi, lib
from xts_proxy.config.config import Policy, Rule
from xts_proxy.config.config_values import Network, Ports, Queues
from xts_proxy.config.policy_explained import IPAddress, Who, decide, parse_endpoint
from xts_proxy.workers.policy_table import Action, flatten, listen_default, to_native

TENANTS = {"default": 0, "a": 7, "b": 3}


def decide_in_c(policy: Policy, action: Action, who: Who, address: IPAddress, port: int) -> Any:
    flat = flatten(policy, TENANTS)
    rules = to_native(ffi, flat)
    endpoint = ffi.new("struct xts_endpoint *")
    endpoint.port, endpoint.ip_version = port, address.version
    ffi.memmove(endpoint.address, address.packed, len(address.packed))
    asks = (action, TENANTS[who.tenant], who.queue_id, endpoint)
    matched = lib.xts_policy_match(rules, len(flat), *asks)
    allow = lib.xts_policy_allows(rules, len(flat), policy.default == "allow", *asks)
    return allow, None if matched == lib.XTS_POLICY_NO_RULE else flat[matched].source


# Few bits differ, so that rules and addresses meet often.
v4_addresses = st.integers(0, 7).map(lambda n: ipaddress.IPv4Address(0x0A000000 | n)) | st.sampled_from(
    [ipaddress.IPv4Address("0.0.0.0"), ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv4Address(2**32 - 1)]
)
v6_addresses = (
    st.integers(0, 7).map(lambda n: ipaddress.IPv6Address((0xFD18 << 112) | n))
    | v4_addresses.map(lambda a: ipaddress.IPv6Address(f"::ffff:{a}"))
    | st.sampled_from(
        [
            ipaddress.IPv6Address(text)
            for text in ("::", "::1", "fe80::1", "::127.0.0.1", "::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1")
        ]
    )
    | st.sampled_from(
        [
            ipaddress.IPv6Address(text)
            for text in (
                *("64:ff9b:1::127.0.0.1", "2002:7f00:1::5", "2002:a00:1::5", "fd18::5efe:127.0.0.1"),
                *("fd18::200:5efe:169.254.1.1", "2001::80ff:fffe", "2001::f5ff:fffe", "fd18::5efe:10.0.0.1"),
            )
        ]
    )
)
addresses: st.SearchStrategy[IPAddress] = v4_addresses | v6_addresses


@st.composite
def networks(draw: st.DrawFn) -> Network:
    address = draw(st.none() | addresses)
    if address is None:
        return Network(None, own=draw(st.booleans()))
    bits = draw(st.integers(0, address.max_prefixlen) | st.sampled_from([0, 8, 10, 31, 32, address.max_prefixlen]))
    return Network(ipaddress.ip_network((address, bits), strict=False))


def ranges(highest: int) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    number = st.integers(0, 5) | st.just(highest)
    pair = st.tuples(number, number).map(lambda p: (min(p), max(p)))
    return st.lists(pair, min_size=1, max_size=3).map(tuple)


rules = st.builds(
    Rule,
    action=st.sampled_from(["allow", "deny"]),
    what=st.sampled_from(["connect", "listen", "both"]),
    network=networks(),
    ports=ranges(65535).map(Ports),
    queues=ranges(2**32 - 1).map(Queues),
    tenants=st.lists(st.sampled_from(list(TENANTS)), max_size=2),
)
policies = st.builds(Policy, default=st.sampled_from(["allow", "deny"]), rule=st.lists(rules, max_size=6))


@given(
    policies,
    st.sampled_from([Action.CONNECT, Action.LISTEN]),
    st.builds(Who, st.sampled_from(list(TENANTS)), st.integers(0, 6) | st.just(2**32 - 1)),
    addresses,
    st.integers(0, 6) | st.just(65535),
)
@example(Policy(), Action.LISTEN, Who(), ipaddress.IPv4Address("0.0.0.0"), 0)
def test_workers_decide_as_the_file_says(
    policy: Policy, action: Action, who: Who, address: IPAddress, port: int
) -> None:
    decision = decide(policy, action, who, address, port)
    assert decide_in_c(policy, action, who, address, port) == (decision.allow, decision.rule)


def some_port_in_c(policy: Policy, action: Action, who: Who, address: IPAddress) -> bool:
    flat = flatten(policy, TENANTS)
    endpoint = ffi.new("struct xts_endpoint *", {"ip_version": address.version})
    ffi.memmove(endpoint.address, address.packed, len(address.packed))
    asks = (action, TENANTS[who.tenant], who.queue_id, endpoint)
    return bool(lib.xts_policy_allows_some_port(to_native(ffi, flat), len(flat), policy.default == "allow", *asks))


@given(
    policies,
    st.sampled_from([Action.CONNECT, Action.LISTEN]),
    st.builds(Who, st.sampled_from(list(TENANTS)), st.integers(0, 6) | st.just(2**32 - 1)),
    addresses,
)
def test_some_port_is_allowed_where_one_is(policy: Policy, action: Action, who: Who, address: IPAddress) -> None:
    """What joins a group before it is bound: never refused where it may be bound, and refused where no rule of whole
    ranges could allow it."""
    one = any(decide(policy, action, who, address, port).allow for port in (*range(7), 65535))
    some = some_port_in_c(policy, action, who, address)
    assert some or not one
    if not any(r.action == "allow" for r in policy.rule) and policy.default == "deny":
        assert not some


def rule(action: str, network: str, **others: Any) -> Rule:
    return Rule(action=action, network=Network.parse(network), **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", False),
        ("::ffff:127.0.0.1", False),  # reaches the same peer
        ("0.0.0.0", False),  # the kernel picks a local address
        ("::", False),
        ("::ffff:0.0.0.0", False),
        ("198.18.0.2", True),
    ],
)
def test_no_spelling_leads_around_a_deny(address: str, allowed: bool) -> None:
    policy = Policy(rule=[rule("deny", "127.0.0.0/8"), rule("allow", "loopback")])
    assert decide_in_c(policy, Action.CONNECT, Who(), ipaddress.ip_address(address), 80)[0] is allowed


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "169.254.169.254", "0.0.0.0", "0.0.0.1", "::1", "fe80::1", "::"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::127.0.0.1"),
        *("64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::127.0.0.1", "2002:7f00:1::1"),
        *("fd18::5efe:127.0.0.1", "fd18::200:5efe:127.0.0.1", "2001:0:1::80ff:fffe"),
    ],
)
def test_the_devices_own_addresses_are_allowed_only_by_name(address: str) -> None:
    peer = ipaddress.ip_address(address)
    for others in ([], [rule("allow", "all")], [rule("allow", "0.0.0.0/0"), rule("allow", "::/0")]):
        assert decide_in_c(Policy(rule=others), Action.CONNECT, Who(), peer, 80) == (False, None)
    named = Policy(rule=[rule("deny", "all", ports=Ports.parse("22")), rule("allow", "loopback")])
    assert decide_in_c(named, Action.CONNECT, Who(), peer, 80) == (True, 1)
    assert decide_in_c(named, Action.CONNECT, Who(), peer, 22) == (False, 0)


def test_listening_on_all_addresses_is_not_listening_on_loopback() -> None:
    assert decide_in_c(Policy(), Action.LISTEN, Who(), ipaddress.ip_address("0.0.0.0"), 80) == (True, None)
    assert decide_in_c(Policy(), Action.LISTEN, Who(), ipaddress.ip_address("127.0.0.1"), 80) == (False, None)


def test_a_network_within_loopback_names_it() -> None:
    policy = Policy(rule=[rule("allow", "127.0.0.1/32"), rule("allow", "::1/128")])
    assert [
        decide_in_c(policy, Action.CONNECT, Who(), ipaddress.ip_address(text), 80)[0]
        for text in ("127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "::1", "127.0.0.2", "0.0.0.0")
    ] == [True, True, True, True, False, False]


def test_rules_of_a_tenant_are_for_it_alone() -> None:
    policy = Policy(default="deny", rule=[rule("allow", "198.18.0.0/15", tenants=["a", "b"])])
    peer = ipaddress.ip_address("198.18.0.2")
    assert [decide_in_c(policy, Action.CONNECT, Who(name), peer, 80)[0] for name in TENANTS] == [False, True, True]


def test_with_tenants_what_they_listen_on_is_named() -> None:
    assert [listen_default(Policy(), count) for count in (0, 1, 2)] == ["allow", "deny", "deny"]
    assert listen_default(Policy(listen="allow"), 2) == "allow"
    assert listen_default(Policy(default="deny"), 0) == "deny"


@pytest.mark.parametrize(
    ("network", "address", "allowed"),
    [
        ("198.18.0.0/15", "198.19.255.255", True),
        ("198.18.0.0/15", "198.20.0.0", False),
        ("198.18.0.0/15", "0.0.0.0", False),  # more than the rule allows
        ("0.0.0.0/0", "0.0.0.0", True),
        ("0.0.0.0/0", "::", False),
        ("::/0", "::", True),
        ("fd18::/65", "fd18::7fff:0:0:1", True),
        ("fd18::/65", "fd18:0:0:0:8000::", False),
        ("all", "::", True),
    ],
)
def test_an_allow_covers_no_more_than_it_says(network: str, address: str, allowed: bool) -> None:
    policy = Policy(default="deny", rule=[rule("allow", network)])
    assert decide_in_c(policy, Action.LISTEN, Who(), ipaddress.ip_address(address), 80)[0] is allowed


def test_the_first_rule_that_matches_decides() -> None:
    policy = Policy(
        rule=[
            rule("allow", "198.18.0.2/32", ports=Ports.parse("80,443,1000-2000"), what="connect"),
            rule("deny", "198.18.0.0/15"),
        ]
    )
    peer = ipaddress.ip_address("198.18.0.2")
    assert decide_in_c(policy, Action.CONNECT, Who(), peer, 1500) == (True, 0)
    assert decide_in_c(policy, Action.LISTEN, Who(), peer, 1500) == (False, 1)
    assert decide_in_c(policy, Action.CONNECT, Who(), peer, 2001) == (False, 1)
    assert decide_in_c(policy, Action.CONNECT, Who(), ipaddress.ip_address("1.1.1.1"), 80) == (True, None)


def test_a_rule_of_several_ranges_becomes_several() -> None:
    ports, queues = Ports.parse("80,443"), Queues.parse("0-3,7")
    flat = flatten(Policy(rule=[rule("deny", "all"), rule("allow", "::/0", ports=ports, queues=queues)]), TENANTS)
    assert [(f.source, f.ports, f.queues) for f in flat[1:]] == [
        (1, (80, 80), (0, 3)),
        (1, (443, 443), (0, 3)),
        (1, (80, 80), (7, 7)),
        (1, (443, 443), (7, 7)),
    ]


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [("198.18.0.2:80", "198.18.0.2", 80), ("[fd18::2]:443", "fd18::2", 443), ("0.0.0.0:0", "0.0.0.0", 0)],
)
def test_endpoints_are_read(text: str, address: str, port: int) -> None:
    assert parse_endpoint(text) == (ipaddress.ip_address(address), port)


@pytest.mark.parametrize("text", ["", "198.18.0.2", "fd18::2:80", "host:80", "1.2.3.4:99999", "[1.2.3.4:80"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoint(text)
