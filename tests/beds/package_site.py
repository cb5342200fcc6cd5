"""Two machines with the Debian packages, a host and a device: a cable between them, and a web server behind the device.

The host has no other way to the server than the device's proxy.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xts_lab.topology import XTS_MTU

from beds import debian_root
from beds.booted import Machine, cable
from beds.patience import SLOWER

HOST = ("libxts1", "python3-xts", "xts-common", "xts-agent", "xts-tools")
DEVICE = ("libxts1", "python3-xts", "xts-common", "xts-proxy", "xts-tools")
USER = "worker"
UPLINK = "198.18.7.1/24"
SERVER = "198.18.7.2"
PORT = 8080
GREETING = "from the other side of the device"
FETCH = ("curl", "--silent", "--show-error", "--fail", "--max-time", "20", f"http://{SERVER}:{PORT}/greeting")


#: A machine whose systemd may not raise limits above its own, as in a container, has no LimitMEMLOCK=infinity.
MEMLOCK_BYTES = 1 << 30
DROP_INS = "/run/systemd/system/xts-agent.service.d"
LOCKED_MEMORY = "[Service]\nCapabilityBoundingSet=CAP_IPC_LOCK\nAmbientCapabilities=CAP_IPC_LOCK\n"


@dataclass(frozen=True)
class Site:
    host: Machine
    device: Machine
    root: Path
    server: int  # a process in the network behind the device

    def install(self, folder: str) -> None:
        """Packages of a folder under /packages, as deploy/docs/how-to/install.md has it."""
        install(self.device, folder, DEVICE)
        install(self.host, folder, HOST)

    def configure(self) -> None:
        """AF_XDP queues between the two, and the services started as the documents say."""
        macs = [machine.run("cat", "/sys/class/net/xts0/address").strip() for machine in (self.host, self.device)]
        set_keys(self.host, "/etc/xts/xts-agent.toml", {"# interface": '"xts0"', "# peer_mac": f'"{macs[1]}"'})
        keys = {"queue": '"afxdp"', "interface": '"xts0"', "peer_mac": f'"{macs[0]}"'}
        set_keys(self.device, "/etc/xts/xts-proxy.toml", keys)
        self.device.run("systemctl", "restart", "xts-proxy")
        if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] in range(MEMLOCK_BYTES):
            self.host.run("mkdir", "-p", DROP_INS)
            self.host.write(f"{DROP_INS}/locked-memory.conf", LOCKED_MEMORY)
            self.host.run("systemctl", "daemon-reload")
        self.host.run("systemctl", "enable", "--now", "xts-agent")


def install(machine: Machine, folder: str, names: tuple[str, ...]) -> None:
    wanted = " ".join(f"/packages/{folder}/{name}_*.deb" for name in names)
    paths = f"$(ls {wanted} 2>/dev/null)"  # an older version has fewer packages; apt says what is missing
    kept = "-o Dpkg::Options::=--force-confold"  # a configuration that was changed, as unattended upgrades do
    machine.run("sh", "-c", f"apt-get install --yes --allow-downgrades {kept} {paths}")


def fetch(machine: Machine, endpoint: str = "") -> str:
    """What a program that was not changed, of a user without privilege, gets from the server."""
    at = ("env", f"XTS_ENDPOINT={endpoint}") if endpoint else ()
    return machine.run(*at, "xts", "run", "-v", *FETCH, user=USER)


def set_keys(machine: Machine, path: str, values: dict[str, str]) -> None:
    """In the file that was installed. A key that is a comment there is named with its "# "."""
    lines = machine.run("cat", path).splitlines(keepends=True)
    for key, value in values.items():
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{key} = "))
        lines[at] = f"{key.removeprefix('# ')} = {value}\n"
    machine.write(path, "".join(lines))


@contextmanager
def raised(name: str, folder: Path, *, queues: int = 2, **versions: Path) -> Iterator[Site]:
    """Machines which nothing is installed in yet, with so many queues between them. versions: folders of packages,
    which they see by these names."""
    offered = folder / "packages"
    for version, packages in versions.items():
        shutil.copytree(packages, offered / version)
    (folder / "greeting").write_text(GREETING)
    root = debian_root.made(next(iter(versions.values())))
    with (
        _server(folder) as server,
        Machine(f"xts-host-{name}", root, offered) as host,
        Machine(f"xts-dpu-{name}", root, offered) as device,
    ):
        cable(host.pid, device.pid, "xts0", queues=queues, mtu=XTS_MTU)
        cable(device.pid, server, "uplink")
        device.run("ip", "address", "add", UPLINK, "dev", "uplink")
        enter = ["nsenter", "--target", str(server), "--net"]
        subprocess.run([*enter, "ip", "address", "add", f"{SERVER}/24", "dev", "uplink"], check=True)
        for machine in (host, device):
            machine.run("useradd", "--create-home", USER)
        yield Site(host, device, root, server)


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    """A web server in a network of its own; its process."""
    program = [sys.executable, "-m", "http.server", "--bind", "0.0.0.0", "--directory", str(folder), str(PORT)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(["unshare", "--net", *program], stdout=quiet, stderr=quiet) as process:
        try:
            wait(lambda: _network(process.pid) != _network("self"), "network of the server")
            yield process.pid
        finally:
            process.kill()


def _network(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def wait(reached: Callable[[], object], what: str, timeout_s: float = 30.0 * SLOWER) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, f"no {what} in {timeout_s} s"
        time.sleep(0.05)
