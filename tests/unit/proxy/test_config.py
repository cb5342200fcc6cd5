"""The configuration file of xts-proxy: what is taken, and how each mistake is told."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from beds.authority import Authority
from hypothesis import given
from hypothesis import strategies as st
from xts_bpf.parser import EXAMPLE_FILTER
from xts_messages.settings.config_mistakes import ConfigError
from xts_proxy.config.config import Config, load, parse, read, render, restart_needed
from xts_proxy.config.config_values import Mac, MetricsAddress, Network, Ports, Queues

EXAMPLE = Path(__file__).parents[3] / "deploy" / "xts-proxy.toml"


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return [str(mistake) for mistake in caught.value.mistakes]


def test_an_empty_file_is_the_defaults() -> None:
    assert parse("", "f")[0] == Config()


def test_the_example_has_every_key_at_its_default(tmp_path: Path) -> None:
    config, given_keys = read(EXAMPLE)
    assert config == Config()
    # The example's rules are comments, so that its policy is the default; uncommented, they are valid.
    for table in ("proxy", "limits", "tls"):
        names = {field.name for field in msgspec.structs.fields(getattr(config, table))} - {"identity", "trust"}
        assert {path[1] for path in given_keys if path[0] == table and len(path) == 2} == names
    assert {path[1] for path in given_keys if path[0] == "ulp" and len(path) == 2} | {"parser"} == {
        field.name for field in msgspec.structs.fields(config.ulp)
    }
    uncommented = re.sub(r"^#(?=\[\[|\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    authority = Authority()
    www = authority.issue("localhost")
    for name, text in (("www.pem", www.certificate), ("www.key", www.key), ("roots.pem", authority.certificate)):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_bytes(text)
    objects = EXAMPLE_FILTER.parent
    uncommented = uncommented.replace("cpus = []", "cpus = [0]")  # which its rule of steering needs
    full, _ = parse(uncommented.replace("/etc/xts/", f"{tmp_path}/").replace("/usr/lib/xts/", f"{objects}/"), "f")
    assert full.policy.rule and full.tls.identity and full.tls.trust and full.tenant
    assert full.names.rule and full.ulp.parser and full.filter and full.steer


def test_values_arrive_as_their_types() -> None:
    config, _ = parse(
        """
        [proxy]
        queue = "afxdp"
        interface = "xts0"
        peer_mac = "02:00:00:00:0a:01"
        queues = "0-3,7"
        workers = 2
        cpus = [2, 3]
        drain_timeout_s = 3
        drain_refuse_s = 1
        metrics = "[::1]:9464"
        [limits]
        window_kib = 128
        [[policy.rule]]
        action = "deny"
        network = "fd18::/64"
        ports = "80,443,1000-2000"
        """,
        "f",
    )
    assert config.proxy.peer_mac.octets == bytes.fromhex("020000000a01")
    assert config.proxy.queues.pairs == ((0, 3), (7, 7))
    assert (config.proxy.drain_timeout_s, config.proxy.drain_refuse_s) == (3.0, 1.0)
    assert config.proxy.metrics == MetricsAddress(host="::1", port=9464)
    assert config.limits.window_kib == 128
    assert config.policy.rule[0].ports.pairs == ((80, 80), (443, 443), (1000, 2000))


def test_all_mistakes_are_told_at_once_in_order_with_their_places() -> None:
    text = """\
[proxy]
queue = "rmda"
  workers = "two"
cpus = [0, -1]
endpont = "/x"
[limits]
connections = 0
[[policy.rule]]
action = "allow"
network = "198.18.0.1/15"
[[policy.rule]]
ports = "80-70"
[polcy]
"""
    found = mistakes(text)
    assert [line.split(" ")[:2] for line in found] == [
        ["f:2:9:", "proxy.queue:"],
        ["f:3:13:", "proxy.workers:"],
        ["f:4:12:", "proxy.cpus[1]:"],
        ["f:5:1:", "proxy.endpont:"],
        ["f:7:15:", "limits.connections:"],
        ["f:10:11:", "policy.rule[0].network:"],
        ["f:11:1:", "policy.rule[1].action:"],
        ["f:12:9:", "policy.rule[1].ports:"],
        ["f:13:1:", "polcy:"],
    ]
    assert '"rdma" or "shm", found "rmda"' in found[0]
    assert 'expected an integer from 1 to 256, found "two"' in found[1]
    assert "did you mean endpoint?" in found[3]
    assert "did you mean 198.18.0.0/15?" in found[5]
    assert "is missing" in found[6]
    assert "did you mean policy?" in found[8]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[proxy]\nqueue = ", "f:2:9: is not TOML: Invalid value"),
        ("[proxy", "f:1:7: is not TOML"),
        ("a = 1\na = 2", "f:2:6: is not TOML: Cannot overwrite a value"),
        ("proxy = 3", "f:1:9: proxy: expected a table, found 3"),
        ("[limits]\nrule = []", "f:2:1: limits.rule: unknown key; known are connections"),
        ("[policy]\nrule = 1", "f:2:8: policy.rule: expected an array, each element a table, found 1"),
        ("[policy]\nrule = [1]", "f:2:9: policy.rule[0]: expected a table, found 1"),
        ('[proxy]\nqueue = "afxdp"', "f:1:1: proxy.interface: is needed"),
        ("[proxy]\ncpus = [1, 2]", "f:2:8: proxy.cpus: expected one CPU for each of 1 workers"),
        ("[proxy]\nworkers = true", "f:2:11: proxy.workers: expected an integer from 1 to 256, found true"),
        ("[proxy]\nspin_us = 1.5", "f:2:11: proxy.spin_us: expected an integer from 0 to 1000000, found 1.5"),
        ("[proxy]\nuser = 1979-05-27", "f:2:8: proxy.user: expected the name of a user, found a date"),
        ('[proxy]\nendpoint = "x"', 'expected an absolute path such as "/run/xts/x.sock", found "x"'),
        (
            '[proxy]\ncontrol = "/run/xts/endpoint.sock"',
            "proxy.control: /run/xts/endpoint.sock is also endpoint",
        ),
        ("[proxy]\nframe_window = 129", "expected an integer from 4 to 128, found 129"),
        ("[limits]\nwindow_kib = 8192", "f:2:14: limits.window_kib: 8192 is above window_max_kib = 2048"),
        ("[limits]\nspill_mib = 1", "limits.window_max_kib: 2048 KiB is more than spill_mib = 1"),
        ("[ulp]\nhandshake_timeout_ms = 500", "ulp.first_byte_timeout_ms: 2000 is longer than the whole handshake"),
        ('[proxy]\nmetrics = "0.0.0.0"', "this is no address and port"),
        ('[proxy]\nmetrics_key = "/none"', "1:1: proxy.metrics_certificate: is needed with a key"),
        ('[proxy]\nmetrics_token = "/none"', "2:17: proxy.metrics_token: /none: No such file"),
        ('[proxy]\nmetrics = "unix:x"', "the path of the socket must be absolute"),
        ('[proxy]\npeer_mac = "03:00:00:00:00:01"', "this is a group address"),
        ('[proxy]\nqueues = ""', "'' is neither a number nor a range"),
        ('[[policy.rule]]\naction = "deny"\nports = "0-65536"', "65536 is above 65535"),
    ],
)
def test_each_mistake_has_its_place_and_remedy(text: str, told: str) -> None:
    (line,) = [line for line in mistakes(text) if told in line] or mistakes(text)
    assert told in line


def test_rules_of_too_many_ranges_are_refused() -> None:
    ranges = ",".join(map(str, range(100)))
    (line,) = mistakes(f'[[policy.rule]]\naction = "deny"\nports = "{ranges}"\nqueues = "{ranges}"')
    assert "10000 combinations" in line


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    for path, problem in [
        (tmp_path / "absent.toml", "No such file"),
        (tmp_path, "Is a directory"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            load(path)
    (tmp_path / "latin1.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(ConfigError, match="not UTF-8 at byte 5"):
        load(tmp_path / "latin1.toml")


def test_what_is_shown_reads_back_the_same() -> None:
    text = """
    [proxy]
    queue = "afxdp"
    interface = "xts\\u007f0"
    peer_mac = "02:00:00:00:00:01"
    [limits]
    listeners = 3
    [[policy.rule]]
    action = "deny"
    what = "listen"
    ports = "0-1023"
    """
    config, given_keys = parse(text, "f")
    shown = render(config, given_keys)
    assert parse(shown, "f")[0] == config
    assert 'interface = "xts\\u007f0"\n' in shown
    assert "workers = 1  # default\n" in shown


def test_a_reload_names_what_needs_a_restart() -> None:
    old = Config()
    new, _ = parse("[proxy]\nworkers = 4\nspin_us = 5\n[limits]\nconnections = 9", "f")
    assert restart_needed(old, new) == ["proxy.workers: 1 -> 4"]


@given(st.text())
def test_any_text_is_a_configuration_or_a_list_of_mistakes(text: str) -> None:
    try:
        parse(text, "f")
    except ConfigError as error:
        assert error.mistakes


@given(st.text(max_size=20))
def test_strings_are_parsed_or_refused_and_print_as_they_parse(text: str) -> None:
    for kind in (Ports, Queues, Network, Mac, MetricsAddress):
        try:
            value = kind.parse(text)
        except ValueError:
            continue
        assert kind.parse(str(value)) == value
