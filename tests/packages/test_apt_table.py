"""What apt does to a machine on which nginx serves under `xts run`: the table of deploy/docs/how-to/install.md."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from beds import debian_root
from beds.booted import Machine
from beds.package_site import DEVICE, HOST, UPLINK, Site, install, raised, wait

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(1800)]
DOCUMENT = debian_root.TOP / "deploy/docs/how-to/install.md"
BEGIN = "| step | nginx | its connections | new connections | `/etc/xts` | `/run/xts` | XDP program |"
VISITOR = Path(__file__).with_name("programs") / "visitor.py"
ADDRESS, PORT = UPLINK.partition("/")[0], 8081
CONFIGURATION = f"""
user www-data;
worker_processes 1;
daemon off;
events {{}}
http {{ server {{ listen {PORT}; location / {{ return 200 "from nginx\\n"; }} }} }}
"""


def documented() -> dict[str, list[str]]:
    """The cells of each step."""
    _, _, after = DOCUMENT.read_text().partition(BEGIN)
    rows = [line.strip("|").split("|") for line in after.partition("\n\n")[0].splitlines()[2:]]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


class Scene:
    """A site with nginx on its host, and a visitor of it behind the device."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.process = ""

    def prepare(self) -> None:
        """The older packages in place of those of today, configured, and nginx."""
        site, host = self.site, self.site.host
        for machine, names in ((site.host, HOST), (site.device, DEVICE)):
            purge(machine, names)
        site.install("older")
        site.configure()
        host.run("sh", "-c", "systemctl mask nginx.service && apt-get install --yes nginx-light", timeout_s=300)
        host.write("/etc/nginx/nginx.conf", CONFIGURATION)
        host.run("systemd-run", "--unit=web", "xts", "run", "--strict", "nginx")
        self.process = host.property("web", "MainPID")
        wait(self.answers, "answer of nginx", 60)

    def outside(self, *command: str) -> list[str]:
        """A command in the network behind the device."""
        return ["nsenter", "--target", str(self.site.server), "--net", *command]

    def answers(self) -> bool:
        """Does nginx, for somebody who connects now?"""
        ask = self.outside("curl", "--silent", "--fail", "--max-time", "5", f"http://{ADDRESS}:{PORT}/")
        return subprocess.run(ask, capture_output=True, check=False).stdout == b"from nginx\n"

    @contextmanager
    def visitor(self) -> Iterator[subprocess.Popen[str] | None]:
        """A connection to nginx. None: there can be none."""
        if not self.process or not self.answers():
            yield None
            return
        command = self.outside(sys.executable, "-c", VISITOR.read_text(), ADDRESS, str(PORT))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as visit:
            assert visit.stdout and visit.stdout.readline() == "answered\n"
            try:
                yield visit
            finally:
                visit.kill()

    def seen(self, machine: Machine, visit: subprocess.Popen[str] | None) -> list[str]:
        """The cells of a step that has been done on this machine."""
        there = [files(machine, "/etc/xts"), files(machine, "/run/xts"), program_on(machine)]
        if not self.process:
            return ["–", "–", "–", *there]
        program = "runs on" if self.site.host.property("web", "MainPID") == self.process else "ends"
        old = "–"
        if visit and visit.stdin and visit.stdout:
            with suppress(BrokenPipeError):
                visit.stdin.write("\n")
                visit.stdin.flush()
            old = {"answered": "go on"}.get(visit.stdout.readline().strip(), "end")
        new = "answered"
        try:
            wait(self.answers, "answer", 30)
        except AssertionError:
            new = "refused"
        return [program, old, new, *there]


def files(machine: Machine, folder: str) -> str:
    if not machine.succeeds("test", "-e", folder):
        return "gone"
    names = machine.run("ls", "-A", "--ignore=*.dpkg-*", folder).split()
    return ", ".join(f"`{name}`" for name in names) or "empty"


def program_on(machine: Machine) -> str:
    return "attached" if "prog/xdp" in machine.run("ip", "-details", "link", "show", "xts0") else "none"


@pytest.fixture(scope="module")
def scene(older: Path, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with raised("table", tmp_path_factory.mktemp("site"), today=packages, older=older) as site:
        yield Scene(site)


def test_the_steps_are_all_there() -> None:
    assert list(documented()) == list(STEPS)


def bring(machine: Machine, names: tuple[str, ...]) -> None:
    install(machine, "today", names)


def remove(machine: Machine, names: tuple[str, ...]) -> None:
    machine.run("apt-get", "remove", "--yes", *names, timeout_s=300)


def purge(machine: Machine, names: tuple[str, ...]) -> None:
    machine.run("apt-get", "purge", "--yes", *names, timeout_s=300)


def reinstall(machine: Machine, names: tuple[str, ...]) -> None:
    install(machine, "today", names)
    [service] = {"xts-agent", "xts-proxy"} & set(names)
    machine.run("systemctl", "start", service)


AGENT, PROXY = ("xts-common", "xts-agent"), ("xts-common", "xts-proxy")
#: In this order, each after the other.
STEPS = {
    "install of the proxy": ("device", bring, DEVICE),
    "install of the agent": ("host", bring, HOST),
    "upgrade of the proxy": ("device", bring, DEVICE),
    "upgrade of agent, library and tools": ("host", bring, HOST),
    "remove of the agent": ("host", remove, AGENT),
    "install and start of the agent again": ("host", reinstall, HOST),
    "remove of the proxy": ("device", remove, PROXY),
    "install and start of the proxy again": ("device", reinstall, DEVICE),
    "purge of the agent": ("host", purge, AGENT),
    "purge of the proxy": ("device", purge, PROXY),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step(scene: Scene, step: str) -> None:
    where, act, names = STEPS[step]
    machine = scene.site.host if where == "host" else scene.site.device
    if step.startswith("upgrade") and not scene.process:
        scene.prepare()
    with scene.visitor() as visit:
        act(machine, names)
        seen = scene.seen(machine, visit)
    print(f"| {step} | {' | '.join(seen)} |")
    assert seen == documented()[step]
