"""The packages in the life of a machine: installed, configured, started, used, removed and purged, in this order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.booted import Machine, cable
from beds.package_site import DEVICE, DROP_INS, GREETING, HOST, Site, fetch, raised, set_keys, wait
from xts_lab.topology import XTS_MTU

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(1800)]
#: Tenths of what `systemd-analyze security` calls exposure.
EXPOSURE_MAX = 20
#: Until a process that hangs is another one: WatchdogSec, and a start.
WATCHDOG_S = 30
#: Where apt, dpkg and this test keep what they know of packages, also of those that are gone.
BOOKKEEPING = ("/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/apt/", "/var/log/apt/", "/packages")
#: What `xts run -v` says of curl at its end.
OFFLOADED = "sockets: 1 offloaded"
SERVICES = pytest.mark.parametrize("service", ["xts-agent", "xts-proxy"])


@pytest.fixture(scope="module")
def site(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with raised("life", tmp_path_factory.mktemp("site"), today=packages) as made:
        yield made


def machine_of(site: Site, service: str) -> Machine:
    return site.host if service == "xts-agent" else site.device


def active(machine: Machine, unit: str) -> bool:
    return machine.property(unit, "ActiveState") == "active"


def stopped(machine: Machine, unit: str) -> bool:
    """Nor about to be started again."""
    return machine.property(unit, "ActiveState") == "inactive"


def journal(machine: Machine, unit: str) -> str:
    return machine.run("journalctl", "--no-pager", "--lines=30", f"--unit={unit}", check=False)


def test_installing_starts_the_proxy_and_not_the_agent(site: Site) -> None:
    site.install("today")
    assert active(site.device, "xts-proxy.service"), journal(site.device, "xts-proxy")
    assert not active(site.host, "xts-agent.service"), "it has no interface yet"
    assert site.host.run("systemctl", "--failed", "--quiet") == ""


def test_an_agent_that_is_not_configured_says_so_once(site: Site) -> None:
    unit = "xts-agent.service"
    assert not site.host.succeeds("systemctl", "start", unit)
    wait(lambda: site.host.property(unit, "ActiveState") == "failed", "end of the agent")
    assert site.host.property(unit, "NRestarts") == "0"
    assert "interface and peer_mac must be given" in site.host.property(unit, "StatusText")
    site.host.run("systemctl", "stop", "xts-agent.socket")
    site.host.run("systemctl", "reset-failed")


def test_commands_are_completed(site: Site) -> None:
    """bash loads the file when a command is completed first."""
    ask = ". /usr/share/bash-completion/completions/xts; COMP_WORDS=(xts stat); COMP_CWORD=1; _shtab_xts 2>/dev/null"
    assert site.host.run("bash", "-c", f'{ask}; echo "${{COMPREPLY[@]}}"').split() == ["status"]


def test_a_proxy_without_an_interface_serves_its_own_machine(site: Site) -> None:
    """Over shared memory."""
    told = fetch(site.device)
    assert GREETING in told
    assert OFFLOADED in told


def test_a_program_of_a_user_without_privilege_reaches_what_the_device_does(site: Site) -> None:
    """Over queues of AF_XDP, which the agent opens and the unprivileged proxy serves."""
    site.configure()
    assert active(site.device, "xts-proxy.service"), journal(site.device, "xts-proxy")
    assert active(site.host, "xts-agent.service"), journal(site.host, "xts-agent")
    told = fetch(site.host)
    assert GREETING in told
    assert OFFLOADED in told


def test_the_agent_is_started_for_who_attaches(site: Site) -> None:
    site.host.run("systemctl", "stop", "xts-agent.service")
    assert stopped(site.host, "xts-agent.service")
    assert active(site.host, "xts-agent.socket")
    assert GREETING in fetch(site.host)
    assert active(site.host, "xts-agent.service")


def test_another_interface_has_a_proxy_of_its_own(site: Site) -> None:
    """xts-proxy@east. It and its file go before the packages do."""
    instance, control = "xts-proxy@east.service", "/run/xts/east.sock"
    cable(site.host.pid, site.device.pid, "xts1", mtu=XTS_MTU)
    macs = [machine.run("cat", "/sys/class/net/xts1/address").strip() for machine in (site.host, site.device)]
    site.device.run("cp", "/etc/xts/xts-proxy.toml", "/etc/xts/xts-proxy-east.toml")
    keys = {"interface": '"xts1"', "peer_mac": f'"{macs[0]}"', "control": f'"{control}"'}
    set_keys(site.device, "/etc/xts/xts-proxy-east.toml", keys)
    site.device.run("systemctl", "start", instance)
    assert active(site.device, instance) and active(site.device, "xts-proxy.service"), journal(site.device, instance)
    exposed = ("systemd-analyze", "security", f"--threshold={EXPOSURE_MAX}", "--no-pager")
    site.device.run(*exposed, instance)
    agent = ("xts-agent", "--interface", "xts1", "--peer-mac", macs[1], "--endpoint", "/run/east.sock")
    site.host.run("systemd-run", "--unit=agent-east", "--property=Type=notify", *agent)
    try:
        told = fetch(site.host, endpoint="/run/east.sock")
        assert GREETING in told and OFFLOADED in told
        served = json.loads(site.device.run("xts-proxy", "status", "--json", "--control", control))
        assert sum(worker["connects_ok"] for worker in served["workers"]) == 1, "it went by the other proxy"
    finally:
        site.host.run("systemctl", "stop", "agent-east")
        site.host.run(*agent, "--detach")  # its relay waits for another agent otherwise
        site.device.run("systemctl", "stop", instance)
        site.device.run("rm", "/etc/xts/xts-proxy-east.toml")
    assert GREETING in fetch(site.host)


@SERVICES
def test_nobody_of_a_service_is_root(site: Site, service: str) -> None:
    machine = machine_of(site, service)
    group = machine.property(f"{service}.service", "ControlGroup")
    processes = machine.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").split()
    users = machine.run("ps", "-o", "user:20=", "-p", ",".join(processes)).split()
    assert len(users) == len(processes) >= 2
    assert set(users) == {"xts-agent" if service == "xts-agent" else "xts"}


@SERVICES
def test_exposure_of_a_running_unit(site: Site, service: str) -> None:
    machine = machine_of(site, service)
    assert active(machine, f"{service}.service")
    machine.run("systemd-analyze", "security", f"--threshold={EXPOSURE_MAX}", "--no-pager", f"{service}.service")


@SERVICES
def test_a_service_that_hangs_is_started_again(site: Site, service: str) -> None:
    machine, unit = machine_of(site, service), f"{service}.service"
    process = machine.property(unit, "MainPID")
    machine.run("kill", "-STOP", process)
    wait(lambda: machine.property(unit, "MainPID") not in (process, "0"), "new process", WATCHDOG_S)
    wait(lambda: active(machine, unit), f"{unit} that is ready", WATCHDOG_S)
    assert machine.property(unit, "NRestarts") != "0"
    assert GREETING in fetch(site.host)


@SERVICES
def test_removed_and_purged(site: Site, service: str) -> None:
    """Removed, the configuration stays. Purged, nothing does, except the users: files may be theirs."""
    machine, names = machine_of(site, service), HOST if service == "xts-agent" else DEVICE
    files = [path for path in machine.run("dpkg-query", "--listfiles", *names).split() if path != "/."]
    machine.run("apt-get", "remove", "--yes", *names)
    assert stopped(machine, f"{service}.service")
    assert stopped(machine, f"{service}.socket")
    assert machine.run("systemctl", "list-unit-files", "--no-legend", "xts*", check=False) == ""
    assert machine.succeeds("test", "-s", f"/etc/xts/{service}.toml")
    machine.run("dpkg", "--purge", *names)
    machine.run("rm", "-rf", DROP_INS)  # the test's own
    found = machine.run("find", "/", "/run", "-xdev", "-name", "*xts*").split()
    assert [path for path in found if not path.startswith(BOOKKEEPING) and not (site.root / path[1:]).exists()] == []
    remain = machine.run("sh", "-c", 'for path do [ -e "$path" ] && echo "$path"; done; true', "sh", *files).split()
    nobodys = [path for path in remain if not machine.succeeds("dpkg-query", "--search", path)]
    assert nobodys == []
    assert machine.run("systemctl", "--failed", "--quiet") == ""
