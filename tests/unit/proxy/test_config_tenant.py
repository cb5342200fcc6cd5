"""Tenants of the configuration file: who belongs to which, and with which limits."""

from __future__ import annotations

import os

import pytest
from xts_messages.attaching.attach_token import cgroup_of
from xts_messages.settings.config_mistakes import ConfigError
from xts_proxy.config.config import Config, parse, render
from xts_proxy.config.config_limits import Limits
from xts_proxy.config.config_tls import Identity, Tls, explain
from xts_proxy.config.config_values import Queues
from xts_proxy.tenants.tenants import RESOURCES, Tenants, native_limits

SHM = """
[limits]
connections = 100
[[tenant]]
name = "web"
users = ["1042", "root"]
weight = 300
limits = { connections = 7, spill_mib = 64 }
[[tenant]]
name = "jobs"
cgroups = ["/jobs.slice"]
[[tenant]]
name = "night"
users = ["1043"]
cgroups = ["/night.slice/"]
"""
AFXDP = """
[proxy]
queue = "afxdp"
interface = "xts0"
peer_mac = "02:00:00:00:00:01"
[[tenant]]
name = "front"
queues = "0-3"
[[tenant]]
name = "rest"
interface = "xts0"
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return [str(mistake) for mistake in caught.value.mistakes]


def test_without_a_table_everybody_is_the_default_tenant() -> None:
    tenants = Tenants(Config())
    assert tenants.of_process(0, "/").name == tenants.of_queue("xts0", 3).name == "default"


@pytest.mark.parametrize(
    ("uid", "cgroup", "name"),
    [
        (1042, "/", "web"),
        (0, "/jobs.slice/a.scope", "web"),
        (7, "/jobs.slice", "jobs"),
        (7, "/jobs.slice/a.scope", "jobs"),
        (7, "/jobs.slicer", "default"),
        (1043, "/night.slice/x", "night"),
        (1043, "/day.slice", "default"),
        (7, "/night.slice/x", "default"),
        (7, "", "default"),
    ],
)
def test_a_process_belongs_to_the_first_tenant_that_has_its_user_and_its_cgroup(
    uid: int, cgroup: str, name: str
) -> None:
    assert Tenants(parse(SHM, "f")[0]).of_process(uid, cgroup).name == name


@pytest.mark.parametrize(
    ("interface", "queue", "name"), [("xts0", 3, "front"), ("xts0", 4, "rest"), ("xts1", 4, "default")]
)
def test_a_queue_belongs_to_the_first_tenant_that_has_it(interface: str, queue: int, name: str) -> None:
    assert Tenants(parse(AFXDP, "f")[0]).of_queue(interface, queue).name == name


def test_limits_of_a_tenant_are_those_of_all_except_its_own() -> None:
    config, _ = parse(SHM, "f")
    web, jobs, _ = config.tenant
    assert web.limits_in_force(config.limits) == Limits(connections=7, spill_mib=64)
    assert jobs.limits_in_force(config.limits) == Limits(connections=100)
    assert set(native_limits(config.limits)) == set(RESOURCES.values())


def test_a_reload_keeps_accounts_and_their_numbers() -> None:
    tenants = Tenants(parse(SHM, "f")[0])
    before = {name: (account.number, account.native) for name, account in tenants.accounts.items()}
    tenants.configure(parse('[[tenant]]\nname = "new"\nusers = ["5"]\n' + SHM.replace('"jobs"', '"work"'), "f")[0])
    assert {name: (account.number, account.native) for name, account in tenants.accounts.items()} | before == {
        name: (account.number, account.native) for name, account in tenants.accounts.items()
    }
    numbers = [account.number for account in tenants.accounts.values()]
    assert sorted(numbers) == list(range(6))


def test_what_is_shown_reads_back_the_same() -> None:
    for text in (SHM, AFXDP):
        config, given = parse(text, "f")
        assert parse(render(config, given), "f")[0] == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "a"', "tenant[0].name: nobody belongs to a; expected users or cgroups"),
        ('name = "a"\nqueues = "1"', 'tenant[0].queues: means queue = "afxdp", and proxy.queue is "shm"'),
        ('name = "default"\nusers = ["1"]', "tenant[0].users: default is for processes of no other tenant"),
        ('name = "a"\nusers = ["1"]\n[[tenant]]\nname = "a"\nusers = ["2"]', "tenant[1].name: a is used already"),
        (
            'name = "a"\nusers = ["1"]\nlimits = { connection = 1 }',
            "limits.connection: unknown key; did you mean connections",
        ),
        ('name = "a"\nusers = ["1"]\nlimits = { connections = 0 }', "expected an integer from 1 to 1048575, found 0"),
        (
            'name = "a"\nusers = ["1"]\nlimits = { spill_mib = 1 }',
            "limits.window_max_kib: 2048 KiB is more than spill_mib",
        ),
        ('name = "a"\nusers = ["no-such-user"]', "tenant[0].users[0]: this machine has no user no-such-user"),
        ('name = "a"\ncgroups = ["x"]', "expected the path of a cgroup"),
        ('name = "a b"\nusers = ["1"]', "expected a name of at most 63 letters"),
    ],
)
def test_mistakes_are_told(text: str, problem: str) -> None:
    found = mistakes(f"[[tenant]]\n{text}\n")
    assert len(found) == 1 and problem in found[0], found


def test_the_cgroup_of_a_process_is_read() -> None:
    assert cgroup_of(os.getpid()).startswith("/")
    assert cgroup_of(1 << 30) == ""


def test_policy_names_tenants_that_are_there() -> None:
    rule = '[[policy.rule]]\naction = "deny"\ntenants = ["web", "jbos"]\n'
    assert mistakes(SHM + rule)[0].endswith("policy.rule[0].tenants[1]: there is no tenant jbos; did you mean jobs?")
    assert parse(SHM + rule.replace("jbos", "default"), "f")[0].policy.rule[0].tenants == ["web", "default"]


VOUCHED = """
[proxy]
queue = "afxdp"
interface = "xts0"
peer_mac = "02:00:00:00:00:01"
token_key = "/etc/xts/token.key"
[[tenant]]
name = "web"
users = ["1042", "7"]
cgroups = ["/a.slice", "/b.slice/"]
[[tenant]]
name = "front"
queues = "0-3,7"
[[tenant]]
name = "elsewhere"
interface = "xts1"
"""


def test_identities_are_rules_in_the_order_of_the_file() -> None:
    rules = Tenants(parse(VOUCHED, "f")[0]).identity_rules("xts0")
    assert [(i.queue_first, i.queue_last, i.uid, i.cgroup, account.name) for i, account in rules] == [
        *((0, Queues.highest, uid, path, "web") for uid in (1042, 7) for path in ("/a.slice", "/b.slice/")),
        (0, 3, None, "", "front"),
        (7, 7, None, "", "front"),
        (0, Queues.highest, None, "", "default"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("token_key", "#", "cannot be known over an interface, unless the agent says so (token_key)"),
        ('"1042"', '"root"', "root is not a number, and only the host knows the names of its users"),
        ("/a.slice", "/" + "a" * 255, "tokens have 215 bytes of it: name one further up"),
    ],
)
def test_mistakes_of_what_an_agent_vouches_for_are_told(old: str, new: str, problem: str) -> None:
    assert any(problem in mistake for mistake in mistakes(VOUCHED.replace(old, new)))


def test_identities_are_for_tenants() -> None:
    table = SHM + '[[tls.identity]]\nname = "www"\ncertificate = "/c"\nkey = "/k"\ntenants = ["wbe"]\n'
    assert any(
        "tls.identity[0].tenants[0]: there is no tenant wbe; did you mean web?" in told for told in mistakes(table)
    )
    tls = Tls(identity=[Identity(name="www", certificate="/c", key="/k", tenants=["web"])])
    assert explain(tls, "identity", "www", "web", 3) == 'allow: tls.identity[0] (queues = "all", tenants web)'
    assert explain(tls, "identity", "www", "jobs", 3).startswith("deny")


def test_numbers_of_tenants_are_known_before_a_reload_takes_them() -> None:
    tenants = Tenants(parse(SHM, "f")[0])
    new = parse('[[tenant]]\nname = "new"\nusers = ["5"]\n' + SHM, "f")[0]
    before = tenants.numbers(new)
    tenants.configure(new)
    assert tenants.numbers() == before


def test_a_rate_and_a_mark() -> None:
    config, _ = parse(SHM.replace("weight = 300", "pacing_mbit_s = 8\ndscp = 0"), "f")
    web, jobs = config.tenant[0], config.tenant[1]
    assert (web.pacing_bytes_s, web.dscp) == (1_000_000, 0)
    assert (jobs.pacing_bytes_s, jobs.dscp) == (0, None)
    assert parse(render(config), "f")[0] == config
    assert mistakes(SHM.replace("weight = 300", "pacing_mbit_s = 0\ndscp = 64")) == [
        "f:7:17: tenant[0].pacing_mbit_s: expected an integer from 1 to 1000000, found 0",
        "f:8:8: tenant[0].dscp: expected an integer from 0 to 63, found 64",
    ]
