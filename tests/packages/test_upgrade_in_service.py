"""Packages of another version on a running site, under systemd: a new proxy takes over in its unit, and no connection
ends. What happens while it does: one of both is killed, the unit is stopped or started again, it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.booted import Machine
from beds.package_site import DEVICE, FETCH, GREETING, SERVER, USER, Site, fetch, install, raised, wait

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(1800)]
PROGRAMS = Path(__file__).with_name("programs")
ECHO_PORT = 8081
CONNECTIONS = 20
UNIT = "xts-proxy.service"
FILE = "/etc/xts/xts-proxy.toml"
UPGRADE = ("xts-proxy", "--config", FILE, "upgrade")
#: Python of the packages, for programs that use xts_socket; and any program's.
OURS, ANY = "/usr/lib/python3-xts/bin/python3", "/usr/bin/python3"


@pytest.fixture(scope="module")
def site(older: Path, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with raised("service", folder, queues=8, today=packages, older=older) as made, echo_server(made):
        made.install("older")
        made.configure()
        yield made


@contextmanager
def echo_server(site: Site) -> Iterator[None]:
    enter = ["nsenter", "--target", str(site.server), "--net"]
    command = [*enter, sys.executable, str(PROGRAMS / "echo.py"), str(ECHO_PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout and server.stdout.readline() == "up\n"
            yield
        finally:
            server.kill()


@contextmanager
def holder(site: Site, *how: str, endpoint: str = "") -> Iterator[Callable[[], str]]:
    """A program of a user of the host with connections; what is called says how it went on each. `endpoint`: of the
    device, and the program is there."""
    program = (PROGRAMS / "holder.py").read_text()
    python = [OURS] if how else ["xts", "run", ANY]
    arguments = [SERVER, str(ECHO_PORT), "1" if how else str(CONNECTIONS), *how]
    machine, at = (site.device, ("env", f"XTS_ENDPOINT={endpoint}")) if endpoint else (site.host, ())
    command = machine.command(*at, *python, "-c", program, *arguments, user=USER)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin and process.stdout
        stdin, stdout = process.stdin, process.stdout

        def ask() -> str:
            stdin.write("\n")
            stdin.flush()
            return stdout.readline().strip()

        try:
            assert stdout.readline() == "up\n"
            yield ask
        finally:
            process.kill()


def main_pid(site: Site) -> str:
    return site.device.property(UNIT, "MainPID")


def active(site: Site) -> bool:
    return site.device.property(UNIT, "ActiveState") == "active"


def alive(machine: Machine, pid: str) -> bool:
    return machine.succeeds("test", "-e", f"/proc/{pid}")


def status(site: Site) -> str:
    return site.device.run("xts-proxy", "status", "--json")


def state(site: Site) -> str:
    return str(json.loads(status(site))["proxy"]["state"])


def new_proxy(site: Site, old: str) -> list[str]:
    """Its supervisor, during a hand-over: `old` has come by one, too, perhaps."""
    found = site.device.run("pgrep", "--full", "--", "--granted-fd=", check=False).split()
    parents = {pid: site.device.run("ps", "-o", "ppid=", "-p", pid, check=False).strip() for pid in found}
    return [pid for pid, parent in parents.items() if parent == "1" and pid != old]


def journal(site: Site) -> str:
    return site.device.run("journalctl", "--no-pager", "--lines=60", f"--unit={UNIT}", check=False)


def processes(site: Site) -> list[str]:
    group = site.device.property(UNIT, "ControlGroup")
    return site.device.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").split() if group else []


def nothing_noticed(site: Site, change: Callable[[], None]) -> None:
    """While the machine's packages change, and after it."""
    before, restarts = main_pid(site), site.device.property(UNIT, "NRestarts")
    with holder(site) as ask:
        assert ask() == "0 ended"
        change()
        assert ask() == "0 ended", journal(site)
        after = main_pid(site)
        assert after not in (before, "0"), journal(site)
        assert f"Main PID: {after}" in site.device.run("systemctl", "status", UNIT)
        wait(lambda: not alive(site.device, before), "end of the proxy before")
        assert active(site) and site.device.property(UNIT, "NRestarts") == restarts
        users = site.device.run("ps", "-o", "user:20=", "-p", ",".join(processes(site))).split()
        assert set(users) == {"xts"} and len(users) >= 3
        assert ask() == "0 ended"
    assert GREETING in fetch(site.host)


def test_a_package_upgrade_ends_no_connection(site: Site) -> None:
    nothing_noticed(site, lambda: install(site.device, "today", DEVICE))
    assert "0.2.0" in site.device.run("dpkg-query", "--show", "xts-proxy")


def test_a_roll_back_ends_no_connection(site: Site) -> None:
    """The package before is installed, and its binary takes over from the living new one; and forth again."""
    for folder in ("older", "today"):
        nothing_noticed(site, lambda folder=folder: install(site.device, folder, DEVICE))  # type: ignore[misc]


def test_an_administrator_may_have_it_started_again(site: Site) -> None:
    """UPGRADE=restart: connections end at once, and new ones are served."""
    before, settings = main_pid(site), "/etc/default/xts-proxy"
    site.device.write(settings, "UPGRADE=restart\n")
    try:
        with holder(site) as ask:
            assert ask() == "0 ended"
            install(site.device, "older", DEVICE)
            assert ask() == f"{CONNECTIONS} ended", journal(site)
        assert active(site) and main_pid(site) not in (before, "0")
        assert not alive(site.device, before)
        wait(lambda: GREETING in site.host.run("xts", "run", *FETCH, user=USER, check=False), "new connection")
    finally:
        site.device.run("rm", settings)
    install(site.device, "today", DEVICE)


def test_the_log_says_who_has_taken_over(site: Site) -> None:
    site.device.run(*UPGRADE)
    said = journal(site)
    assert "upgrade: the new proxy is xts-proxy" in said and "sha256" in said


def test_an_instance_over_shared_memory(site: Site) -> None:
    """xts-proxy@local, which apt upgrades, too."""
    unit, file, endpoint = "xts-proxy@local.service", "/etc/xts/xts-proxy-local.toml", "/run/xts/local.sock"
    site.device.write(file, f'[proxy]\nendpoint = "{endpoint}"\ncontrol = "/run/xts/local-control.sock"\n')
    install(site.device, "today", DEVICE)
    site.device.run("systemctl", "start", unit)
    before = site.device.property(unit, "MainPID")
    try:
        with holder(site, endpoint=endpoint) as ask:
            assert ask() == "0 ended"
            for folder in ("older", "today"):
                install(site.device, folder, DEVICE)
                assert ask() == "0 ended"
                after, before = before, site.device.property(unit, "MainPID")
                assert before not in (after, "0") and site.device.property(unit, "NRestarts") == "0"
    finally:
        site.device.run("systemctl", "stop", unit)
        site.device.run("rm", file)


@contextmanager
def handing_over(site: Site) -> Iterator[tuple[str, str, subprocess.Popen[str], Callable[[], str]]]:
    """An upgrade that lasts, because of what cannot move: processes of the old and new proxy, the command, and what
    asks on the connection that stays."""
    old = main_pid(site)
    with holder(site, "pushed") as ask:
        assert ask() == "0 ended"
        pipe = subprocess.PIPE
        with subprocess.Popen(site.device.command(*UPGRADE), stdout=pipe, stderr=subprocess.STDOUT, text=True) as made:
            wait(lambda: state(site) == "handing over" and len(new_proxy(site, old)) == 1, "new proxy")
            wait(lambda: json.loads(status(site))["proxy"]["upgrade"].get("waits"), "what cannot move")
            assert main_pid(site) not in (old, *new_proxy(site, old), "0"), "the usher is the main process"
            yield old, new_proxy(site, old)[0], made, ask
    wait(lambda: active(site), "active unit")


def test_the_new_proxy_is_killed(site: Site) -> None:
    restarts = site.device.property(UNIT, "NRestarts")
    with handing_over(site) as (old, new, command, ask):
        site.device.run("kill", "-KILL", new)
        assert command.wait(30) == 1, command.stdout and command.stdout.read()
        assert command.stdout and "the proxy before goes on" in command.stdout.read()
        assert main_pid(site) == old and active(site), journal(site)
        wait(lambda: state(site) == "running", "end of the attempt")
        assert site.device.property(UNIT, "NRestarts") == restarts
        assert ask() == "0 ended", "what had not moved has noticed"
    site.device.run("systemctl", "restart", UNIT)  # opens the queues that the new one had
    assert GREETING in fetch(site.host)


def test_the_old_proxy_is_killed(site: Site) -> None:
    restarts = site.device.property(UNIT, "NRestarts")
    with holder(site) as ask, handing_over(site) as (old, new, command, _):
        assert ask() == "0 ended"  # they have moved
        site.device.run("kill", "-KILL", old)
        command.wait(30)
        assert main_pid(site) == new and active(site), journal(site)
        assert site.device.property(UNIT, "NRestarts") == restarts
        assert ask() == "0 ended"
        assert GREETING in fetch(site.host)


def test_the_unit_is_started_again_meanwhile(site: Site) -> None:
    with handing_over(site) as (old, new, _, _):
        site.device.run("systemctl", "restart", UNIT)
        assert active(site) and main_pid(site) not in (old, new, "0")
        assert not alive(site.device, old) and not alive(site.device, new)
        assert GREETING in fetch(site.host)


def test_the_unit_is_stopped_meanwhile(site: Site) -> None:
    with handing_over(site) as (old, new, _, _):
        site.device.run("systemctl", "stop", UNIT)
        assert site.device.property(UNIT, "ActiveState") == "inactive", journal(site)
        assert not alive(site.device, old) and not alive(site.device, new) and not processes(site)
        site.device.run("systemctl", "start", UNIT)


def test_a_new_proxy_that_does_not_start(site: Site) -> None:
    """The package is installed, and says that the proxy before goes on."""
    good = site.device.run("cat", FILE)
    old = main_pid(site)
    with holder(site) as ask:
        site.device.write(FILE, good + "\n[unknown]\n")
        try:
            paths = " ".join(f"/packages/older/{name}_*.deb" for name in DEVICE)
            said = site.device.run("sh", "-c", f"dpkg --force-confold --install {paths}")
        finally:
            site.device.write(FILE, good)
        assert f"{UNIT} goes on with the version before" in said
        assert "unknown" in said, "why is not said"
        assert main_pid(site) == old and active(site)
        assert ask() == "0 ended"
    install(site.device, "today", DEVICE)
    assert main_pid(site) not in (old, "0")
    assert GREETING in fetch(site.host)


IMPOSTOR = """
import os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
asking = socket.socket(socket.AF_UNIX)
asking.connect("/run/xts/proxy.sock")
asking.sendall(b'{"ask": "upgrade"}' + bytes([10]))
print(asking.recv(1000).decode())
"""


def test_the_same_user_may_not(site: Site) -> None:
    ids = [site.device.run("id", which, "xts").strip() for which in ("-u", "-g")]
    assert "only root may take over" in site.device.run(ANY, "-c", IMPOSTOR, *ids)
