"""Agent and proxy on one machine: they share a path and a directory, and whoever starts second takes nothing from the
other. Mistakes in their files: told once, and by `systemctl reload`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.booted import Machine
from beds.package_site import GREETING, Site, fetch, install, raised, set_keys, wait

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(1800)]
ENDPOINT = "/run/xts/endpoint.sock"
#: exit_status.MISTAKE
MISTAKE = "2"
LINES = 12  # of a unit's journal: more than one start of it writes
FILES = {"xts-agent": "/etc/xts/xts-agent.toml", "xts-proxy": "/etc/xts/xts-proxy.toml"}


@pytest.fixture(scope="module")
def site(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The host has a proxy, too: the package starts it, over shared memory. Its agent is configured and not started."""
    with raised("one", tmp_path_factory.mktemp("site"), today=packages) as made:
        made.install("today")
        made.configure()
        stop(made.host, "xts-agent.socket", "xts-agent.service")
        install(made.host, "today", ("xts-proxy",))
        wait(lambda: served_by(made.host) == "proxy", "proxy of the host's own")
        yield made


def stop(machine: Machine, *units: str) -> None:
    machine.run("systemctl", "stop", *units)


def fails(machine: Machine, *command: str) -> str:
    """What a command says that must not succeed."""
    done = subprocess.run(machine.command(*command), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def served_by(machine: Machine) -> str:
    """Who answers at the endpoint: "agent" (its queues have an interface), "proxy", or "": nobody."""
    if not machine.succeeds("xts", "ping", "-n", "1"):
        return ""
    return "agent" if machine.property("xts-agent", "ActiveState") == "active" else "proxy"


def own_lines(machine: Machine, unit: str) -> list[str]:
    """What the processes of a unit wrote last, without systemd's lines about it."""
    program = unit.partition(".")[0]
    shown = machine.run(
        "journalctl", "--no-pager", "--output=cat", f"--unit={unit}", f"_COMM={program}", "-n", str(LINES)
    )
    return shown.splitlines()


def ended_once(machine: Machine, unit: str, sentence: str) -> None:
    """It was started once, and says why it cannot be: last of all, and in its status."""
    wait(lambda: machine.property(unit, "ActiveState") == "failed", f"end of {unit}")
    assert machine.property(unit, "NRestarts") == "0"
    assert machine.property(unit, "ExecMainStatus") == MISTAKE
    assert sentence in own_lines(machine, unit)[-1]
    assert sentence in machine.property(unit, "StatusText")
    assert sentence in fails(machine, "systemctl", "status", "--no-pager", "--lines=4", unit)
    machine.run("systemctl", "reset-failed", check=False)


@contextmanager
def changed(machine: Machine, path: str, **keys: str) -> Iterator[None]:
    before = machine.run("cat", path)
    set_keys(machine, path, keys)
    try:
        yield
    finally:
        machine.write(path, before)


def test_the_directory_of_sockets_is_nobodys(site: Site) -> None:
    for machine in (site.host, site.device):
        assert machine.run("stat", "--format=%U:%G %a", "/run/xts").strip() == "root:xts-run 1775"
    before = site.host.run("stat", "--format=%i", "/run/xts")
    site.host.run("systemctl", "restart", "xts-proxy")
    assert site.host.run("stat", "--format=%i", "/run/xts") == before


def test_neither_user_can_remove_what_is_the_others(site: Site) -> None:
    assert site.host.run("stat", "--format=%U", ENDPOINT).strip() == "xts"
    fails(site.host, "runuser", "-u", "xts-agent", "-g", "xts-run", "--", "rm", ENDPOINT)
    site.host.run("runuser", "-u", "xts-agent", "-g", "xts-run", "--", "touch", "/run/xts/mine")
    fails(site.host, "runuser", "-u", "xts", "-g", "xts-run", "--", "mv", "/run/xts/mine", "/run/xts/yours")
    site.host.run("rm", "/run/xts/mine")


def test_an_agent_that_comes_second_leaves_the_endpoint(site: Site) -> None:
    host = site.host
    process = host.property("xts-proxy", "MainPID")
    fails(host, "systemctl", "enable", "--now", "xts-agent")
    ended_once(host, "xts-agent.service", f"{ENDPOINT} is served by xts-proxy (process {process}): stop that, or")
    assert host.property("xts-agent.socket", "ActiveState") != "active"
    assert served_by(host) == "proxy"
    fails(host, "systemctl", "start", "xts-agent.socket")
    assert f"{ENDPOINT} is served by xts-proxy" in host.run("journalctl", "--no-pager", "--unit=xts-agent.socket")
    assert served_by(host) == "proxy"
    assert host.property("xts-proxy", "MainPID") == process
    host.run("systemctl", "reset-failed")


@pytest.mark.parametrize("action", ["reload", "restart"])
def test_the_first_is_reloaded_and_restarted(site: Site, action: str) -> None:
    site.host.run("systemctl", action, "xts-proxy")
    wait(lambda: served_by(site.host) == "proxy", "proxy")
    fails(site.host, "systemctl", action, "xts-agent")
    assert served_by(site.host) == "proxy"
    site.host.run("systemctl", "reset-failed", check=False)


def test_when_the_first_is_stopped_the_second_can_start(site: Site) -> None:
    stop(site.host, "xts-proxy")
    site.host.run("systemctl", "start", "xts-agent")
    assert served_by(site.host) == "agent"
    assert GREETING in fetch(site.host)


def test_a_proxy_that_comes_second_leaves_the_endpoint(site: Site) -> None:
    host = site.host
    fails(host, "systemctl", "start", "xts-proxy")
    ended_once(host, "xts-proxy.service", f"{ENDPOINT} is served by systemd (a .socket unit")
    fails(host, "systemctl", "start", "xts-proxy.socket")
    host.run("systemctl", "reset-failed")
    assert GREETING in fetch(host)


def test_the_endpoint_of_an_agent_that_is_stopped_is_systemds(site: Site) -> None:
    """A process that attaches starts the agent again, and the proxy takes nothing from it."""
    stop(site.host, "xts-agent.service")
    fails(site.host, "systemctl", "start", "xts-proxy")
    site.host.run("systemctl", "reset-failed", check=False)
    assert GREETING in fetch(site.host)


@pytest.mark.parametrize("action", ["reload", "restart"])
def test_an_agent_that_was_first_is_reloaded_and_restarted(site: Site, action: str) -> None:
    site.host.run("systemctl", action, "xts-agent")
    assert GREETING in fetch(site.host)
    fails(site.host, "systemctl", "restart", "xts-proxy")
    assert GREETING in fetch(site.host)
    site.host.run("systemctl", "reset-failed", check=False)


def test_the_proxy_can_start_when_the_agent_is_stopped_with_its_socket(site: Site) -> None:
    stop(site.host, "xts-agent.socket", "xts-agent.service")
    site.host.run("systemctl", "start", "xts-proxy")
    assert served_by(site.host) == "proxy"


@pytest.mark.parametrize("service", FILES)
def test_a_reload_with_a_mistake_fails_and_changes_nothing(site: Site, service: str) -> None:
    machine = site.host
    serving(site, service)
    process = machine.property(service, "MainPID")
    key, value = ("drain_timeout_s", "-1") if service == "xts-proxy" else ("spares", '"many"')
    with changed(machine, FILES[service], **{key: value}):
        assert "failed" in fails(machine, "systemctl", "reload", service)
        last = own_lines(machine, f"{service}.service")[-1]
        assert last.startswith(f"{FILES[service]}:") and f"{key}: expected " in last
    machine.run("systemctl", "reload", service)
    assert "ok" not in own_lines(machine, f"{service}.service")
    assert machine.property(service, "MainPID") == process


def test_a_reload_of_a_key_that_needs_a_restart_says_so(site: Site) -> None:
    """The proxy's fails and changes nothing. The agent takes the other keys over. Both say it in their status."""
    machine = site.host
    serving(site, "xts-proxy")
    with changed(machine, FILES["xts-proxy"], spin_us="7", workers="3"):
        assert "failed" in fails(machine, "systemctl", "reload", "xts-proxy")
        told = "proxy.workers: "
        assert any(told in line and "needs a restart" in line for line in own_lines(machine, "xts-proxy.service"))
        assert told in machine.property("xts-proxy", "StatusText")
    machine.run("systemctl", "reload", "xts-proxy")
    assert machine.property("xts-proxy", "StatusText") == "serving"
    serving(site, "xts-agent")
    with changed(machine, FILES["xts-agent"], queues="1"):
        machine.run("systemctl", "reload", "xts-agent")
        wait(lambda: "a restart is needed for queues" in machine.property("xts-agent", "StatusText"), "status")


@pytest.mark.parametrize("service", FILES)
def test_a_start_with_a_mistake_is_one_start(site: Site, service: str) -> None:
    serving(site, service)
    with changed(site.host, FILES[service], endpoint_mode='"all"'):
        fails(site.host, "systemctl", "restart", service)
        ended_once(site.host, f"{service}.service", "endpoint_mode: expected an integer from 0 to 511, found")
    serving(site, service)


def test_a_queue_that_is_not_there_is_one_start(site: Site) -> None:
    """It is found by ExecStartPre, whose exit status systemd does not look at."""
    with changed(site.device, FILES["xts-proxy"], queues='"0-200"'):
        fails(site.device, "systemctl", "restart", "xts-proxy")
        ended_once(site.device, "xts-proxy.service", "xts0 has queues 0-1, not 0-200")
    site.device.run("systemctl", "start", "xts-proxy")


def test_an_interface_that_is_not_there_may_come(site: Site) -> None:
    """It is waited for by starting again; the reason stands in the status."""
    device = site.device
    with changed(device, FILES["xts-proxy"], interface='"later0"'):
        fails(device, "systemctl", "restart", "xts-proxy")
        wait(lambda: int(device.property("xts-proxy", "NRestarts")) > 1, "another start")
        wait(lambda: "no interface later0" in device.property("xts-proxy", "StatusText"), "reason in the status")
        stop(device, "xts-proxy")
    device.run("systemctl", "reset-failed", check=False)
    device.run("systemctl", "start", "xts-proxy")


def serving(site: Site, service: str) -> None:
    """This service serves the host's endpoint, and the other one is stopped."""
    other = {"xts-agent": ("xts-proxy",), "xts-proxy": ("xts-agent.socket", "xts-agent.service")}[service]
    stop(site.host, *other)
    site.host.run("systemctl", "reset-failed", check=False)
    site.host.run("systemctl", "start", service)
    assert served_by(site.host) == service.removeprefix("xts-")


@pytest.mark.parametrize("purged", FILES)
def test_purging_one_leaves_the_other(site: Site, purged: str) -> None:
    """With what it needs: the directory of sockets, also when it is started again."""
    host = site.host
    [stays] = [service for service in FILES if service != purged]
    serving(site, stays)
    host.run("apt-get", "purge", "--yes", purged)
    assert served_by(host) == stays.removeprefix("xts-")
    host.run("systemctl", "restart", stays)
    wait(lambda: served_by(host) == stays.removeprefix("xts-"), f"{stays} again")
    assert not host.succeeds("test", "-e", FILES[purged]) and host.succeeds("test", "-e", FILES[stays])
    stop(host, *(["xts-proxy"] if stays == "xts-proxy" else ["xts-agent.socket", "xts-agent.service"]))
    host.run("systemctl", "start", stays)  # into an empty directory
    assert served_by(host) == stays.removeprefix("xts-")
    install(host, "today", (purged,))
    if purged == "xts-agent":
        stop(host, "xts-proxy")
        site.configure()
