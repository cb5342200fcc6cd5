"""`xts-proxy --check` notes rules that decide nothing, as a deny behind an allow of everything."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_proxy.__main__ import main
from xts_proxy.config.config import Config, Policy, Rule, parse
from xts_proxy.config.config_values import Network, Ports, Queues
from xts_proxy.config.policy_explained import Who, decide, is_own
from xts_proxy.config.policy_notes import notes
from xts_proxy.workers.policy_table import Action

ALLOW_ALL = '[[policy.rule]]\naction = "allow"\n'
DENY = '[[policy.rule]]\naction = "deny"\n'


def noted(text: str) -> dict[int, str]:
    return {int(str(key[2])): note for key, note in notes(parse(text, "f")[0])}


def test_a_deny_behind_an_allow_of_everything_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(f'{ALLOW_ALL}\n{DENY}network = "10.0.0.0/8"\n')
    assert main(["--check", str(file)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{file}:4:1: note: policy.rule[1]: denies none of the addresses that it names, except the device's own: "
        "policy.rule[0] above allows all of them"
    ]
    file.write_text(f'{DENY}network = "10.0.0.0/8"\n{ALLOW_ALL}')
    assert main(["--check", str(file)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "later"),
    [
        (ALLOW_ALL + ALLOW_ALL, {1}),
        (DENY + ALLOW_ALL + ALLOW_ALL, {1, 2}),
        (ALLOW_ALL + DENY + 'network = "loopback"\n', set()),
        (ALLOW_ALL + DENY + 'network = "127.0.0.0/8"\n', set()),
        (ALLOW_ALL + 'what = "connect"\n' + DENY, set()),
        (ALLOW_ALL + DENY + 'what = "listen"\n', {1}),
        (ALLOW_ALL + 'ports = "1-79,80-65535,0"\n' + DENY, {1}),
        (ALLOW_ALL + 'ports = "1-65535"\n' + DENY, set()),
        (ALLOW_ALL + 'tenants = ["a"]\n' + DENY + '[[tenant]]\nname = "a"\nusers = ["root"]\n', set()),
        (ALLOW_ALL + DENY + 'tenants = ["a"]\n[[tenant]]\nname = "a"\nusers = ["root"]\n', {1}),
        (ALLOW_ALL + 'network = "10.0.0.0/8"\n' + DENY + 'network = "10.1.0.0/16"\n', {1}),
        (ALLOW_ALL + 'network = "10.1.0.0/16"\n' + DENY + 'network = "10.0.0.0/8"\n', set()),
        (ALLOW_ALL + 'network = "0.0.0.0/0"\n' + DENY + 'network = "fd18::/16"\n', set()),
    ],
)
def test_what_is_noted(text: str, later: set[int]) -> None:
    assert set(noted(text)) == later


def test_names_too() -> None:
    text = """
[[names.rule]]
action = "allow"
domains = ["example.com"]
[[names.rule]]
action = "deny"
domains = ["a.example.com", "example.com"]
[[names.rule]]
action = "deny"
domains = ["an-example.com"]
[[names.rule]]
action = "allow"
[[names.rule]]
action = "deny"
domains = ["example.org"]
"""
    found = dict(notes(parse(text, "f")[0]))
    assert set(found) == {("names", "rule", 1), ("names", "rule", 4)}
    assert "names.rule[3] above" in found["names", "rule", 4]


addresses = st.sampled_from(
    [
        ipaddress.ip_address(text)
        for text in ("10.0.0.0", "10.0.0.1", "10.1.0.1", "127.0.0.1", "127.0.0.2", "fd18::1", "fd18:1::1", "::1")
    ]
)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    address = draw(st.none() | addresses)
    if address is None:
        return Network(None, own=draw(st.booleans()))
    bits = draw(st.sampled_from([0, 8, 16, 32, address.max_prefixlen]))
    return Network(ipaddress.ip_network((address, bits), strict=False))


rules = st.builds(
    Rule,
    action=st.sampled_from(["allow", "deny"]),
    what=st.sampled_from(["connect", "listen", "both"]),
    network=networks(),
    ports=st.sampled_from(["all", "1", "1-2", "2"]).map(Ports.parse),
    queues=st.sampled_from(["all", "0"]).map(Queues.parse),
)


@given(st.lists(rules, min_size=2, max_size=4), addresses, st.sampled_from([1, 2, 3]), st.integers(0, 1))
def test_what_is_noted_never_decides(file: list[Rule], address: ipaddress.IPv4Address, port: int, queue: int) -> None:
    policy = Policy(rule=file)
    for key, text in notes(Config(policy=policy)):
        for action in (Action.CONNECT, Action.LISTEN):
            if "except the device's own" in text and is_own(action, address):
                continue
            assert decide(policy, action, Who(queue_id=queue), address, port).rule != key[2], text
