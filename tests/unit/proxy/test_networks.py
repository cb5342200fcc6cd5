"""A network is the same text, and the same addresses, in the host's rules and in the proxy's policy."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xts_proxy.config.config import Policy, Rule
from xts_proxy.config.config_values import Network
from xts_proxy.config.policy_explained import Who, decide
from xts_proxy.workers.policy_table import Action
from xts_socket._rules import Role, Rules, RulesError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def of_the_host(text: str) -> Rules | None:
    address, slash, prefix = text.partition("/")
    written = f"[{address}]{slash}{prefix}" if ":" in address else text
    try:
        return Rules.parse(f"use os tcp_client {written}:*\ndefault xts".encode())
    except RulesError:
        return None


def of_the_proxy(text: str) -> Policy | None:
    try:
        return Policy(rule=[Rule(action="deny", network=Network.parse(text))])
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("10.0.0.0/8", True),
        ("10.0.0.7", True),
        ("10.0.0.7/8", False),  # one host of /32, or the network 10.0.0.0/8?
        ("10.0.0.0/08", False),
        ("10.0.0.0/33", False),
        ("10.0.0.0/", False),
        ("10.0.0.0/255.0.0.0", False),
        ("10.0.0.0/0.255.255.255", False),
        ("10.0.0", False),
        ("010.0.0.0/8", False),
        ("0.0.0.0/0", True),
        ("::/0", True),
        ("fd18::/16", True),
        ("fd18::1/16", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.0/104", True),
        ("::ffff:10.0.0.0/90", False),
        ("host.example", False),
    ],
)
def test_the_same_texts_are_networks(text: str, valid: bool) -> None:
    assert (of_the_host(text) is not None, of_the_proxy(text) is not None) == (valid, valid)


v4 = st.sampled_from([0x0A000000, 0x0A000001, 0x0A800000, 0xC0000200]).map(ipaddress.IPv4Address)
v6 = st.sampled_from(["fd18::", "fd18::1", "fd18:8000::", "::ffff:10.0.0.0", "::ffff:10.128.0.0"]).map(
    ipaddress.IPv6Address
)
addresses: st.SearchStrategy[IPAddress] = v4 | v6


@given(addresses, st.integers(0, 128) | st.sampled_from([8, 9, 16, 17, 104, 105]), addresses)
@example(ipaddress.IPv6Address("::ffff:10.0.0.0"), 104, ipaddress.IPv4Address("10.0.0.1"))
def test_they_mean_the_same_addresses(network: IPAddress, bits: int, asked: IPAddress) -> None:
    text = f"{network}/{bits}"
    rules, policy = of_the_host(text), of_the_proxy(text)
    assert (rules is None) == (policy is None)
    if rules is None or policy is None:
        return
    stays = not rules.group("app", None).ask(Role.TCP_CLIENT, None, (str(asked), 80)).offload
    denied = decide(policy, Action.CONNECT, Who(), asked, 80).rule == 0
    assert stays == denied
