"""An emulated machine of arm64 as the DPU: another kernel and another processor, with the packages installed, and
three network cards. One leads to the host, the second to a network, the third to the host once more, through a switch
that can lose frames (dpu_switch.py). Host, network and switch are network namespaces here.

The machine is booted by tests/arm64/boot from the root that `tests/arm64/run --root` has made. It carries out commands
that come as files in a folder which both machines see (tests/dpu/programs/serve_requests.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xts_lab import netns

from beds.dpu_switch import CARD_PORT, HOST_PORT, SWITCH, Switch
from beds.patience import EMULATED

TOP = Path(__file__).resolve().parents[2]
ROOT = TOP / "build/arm64/root"
SERVES = TOP / "tests/dpu/programs/serve_requests.py"
HOST, NET = "xts-dpu-host", "xts-dpu-net"
#: Of the machine's cards.
XTS_MAC, UPLINK_MAC, SWITCHED_MAC = (f"52:54:00:dc:00:0{n}" for n in (1, 2, 3))
DEVICE_ADDRESS, SERVER_ADDRESS = "198.18.9.1", "198.18.9.2"
HOST_INTERFACE, SWITCHED_INTERFACE, NET_INTERFACE = "xts0", "xts1", "wire"
CONFIGURATION, TOKEN_KEY = "/etc/xts/xts-proxy.toml", "/etc/xts/token.key"
#: The second proxy is for the third card.
SECOND = "xts-proxy@second"
SECOND_CONFIGURATION, SECOND_CONTROL = "/etc/xts/xts-proxy-second.toml", "/run/xts/second.sock"
#: The machine is some 20 times slower than this one, and its tests share this one's cores.
BOOT_S, COMMAND_S = 120.0 * EMULATED, 24.0 * EMULATED
#: systemd's own: an answer to systemctl, and the start of a unit that does not say.
BUS_S, UNIT_S = 25.0 * EMULATED, 90.0 * EMULATED
UNITS = ("xts-proxy", "xts-proxy@", "xts-bluefield")

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
SLOW_UNIT = f"[Service]\nTimeoutStartSec={UNIT_S:g}\nEnvironment=SYSTEMD_BUS_TIMEOUT={BUS_S:g}\n"


def tap(namespace: str, name: str) -> int:
    """A descriptor of a new interface in this namespace, whose other end it is."""
    with netns.inside(namespace):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
            fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        except OSError:
            os.close(fd)
            raise
    return fd


def entered(namespace: str, *command: str) -> list[str]:
    return [sys.executable, "-m", "xts_lab.launch", namespace, "-", "--", *command]


def ip(namespace: str, *words: str) -> str:
    done = subprocess.run(["ip", "-n", namespace, *words], capture_output=True, text=True, check=True)
    return done.stdout


def mac_of(interface: str) -> str:
    """The address of an interface of the host."""
    return str(json.loads(ip(HOST, "-json", "link", "show", interface))[0]["address"])


class Dpu:
    """A context manager: inside, the machine is up, with addresses on its cards, and its proxy is configured and runs.
    There can be one at a time."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="xts-dpu-"))
            self.folder.chmod(0o755)  # the agent, which gives up root, looks whether its endpoint is there
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            for name in (HOST, NET, SWITCH):
                netns.create(name)
                stack.callback(netns.remove, name)
            self._boot(stack)
            self._networks()
            self.switch = stack.enter_context(Switch(self.folder))
            self._stack = stack.pop_all()
        try:
            self._configure()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def _boot(self, stack: contextlib.ExitStack) -> None:
        machine = self.folder / "machine"
        (machine / "requests").mkdir(parents=True)
        shutil.copy(SERVES, machine / "serve_requests.py")
        taps = tap(HOST, HOST_INTERFACE), tap(NET, NET_INTERFACE), tap(SWITCH, CARD_PORT)
        cards = [f"--nic={fd},{mac}" for fd, mac in zip(taps, (XTS_MAC, UPLINK_MAC, SWITCHED_MAC), strict=True)]
        command = [str(TOP / "tests/arm64/boot"), "--machine", str(machine)]
        for card in cards:
            command += card.split("=", 1)
        command += [str(ROOT), "/usr/bin/env", f"SYSTEMD_BUS_TIMEOUT={BUS_S:g}"]  # of systemctl there
        command += ["/usr/bin/python3", "/run/machine/serve_requests.py", "/run/machine/requests"]
        self._log = stack.enter_context((self.folder / "log").open("w"))
        self._process = subprocess.Popen(
            command, pass_fds=taps, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL, process_group=0
        )
        stack.callback(self._halt)
        for fd in taps:
            os.close(fd)
        self._wait(machine / "requests" / "up", BOOT_S)

    def _halt(self) -> None:
        (self.folder / "machine/requests/end").touch()
        try:
            self._process.wait(30 * EMULATED)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _wait(self, file: Path, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not file.exists():
            assert self._process.poll() is None, f"the machine has ended:\n{self.log()}"
            assert time.monotonic() < until, f"the machine does not answer:\n{self.log()}"
            time.sleep(0.02)

    def _networks(self) -> None:
        ip(HOST, "link", "add", SWITCHED_INTERFACE, "type", "veth", "peer", "name", HOST_PORT, "netns", SWITCH)
        for namespace, name in ((HOST, HOST_INTERFACE), (HOST, SWITCHED_INTERFACE), (NET, NET_INTERFACE)):
            ip(namespace, "link", "set", "lo", "up")
            ip(namespace, "link", "set", name, "up")
        ip(NET, "address", "add", f"{SERVER_ADDRESS}/24", "dev", NET_INTERFACE)

    def _configure(self) -> None:
        """As deploy/docs/how-to/bluefield.md has it for two machines, each with one queue."""
        self.run("udevadm", "settle", check=False)  # where there is udev, it may be about to name them
        names = {link["address"]: link["ifname"] for link in json.loads(self.run("ip", "-json", "link"))}
        for mac, name in ((XTS_MAC, "xts0"), (UPLINK_MAC, "uplink"), (SWITCHED_MAC, "xts1")):
            self.run("ip", "link", "set", names[mac], "down")
            self.run("ip", "link", "set", names[mac], "name", name)
            self.run("ip", "link", "set", name, "up")
        self.run("ip", "address", "add", f"{DEVICE_ADDRESS}/24", "dev", "uplink")
        key = os.urandom(32).hex() + "\n"
        self.write(TOKEN_KEY, key)
        self.run("sh", "-c", f"chown xts: {TOKEN_KEY} && chmod 0600 {TOKEN_KEY}")
        self.key = self.folder / "token.key"
        self.key.touch(0o600)
        self.key.write_text(key)
        for unit in UNITS:
            folder = f"/run/systemd/system/{unit}.service.d"
            self.run("mkdir", "-p", folder)
            self.write(f"{folder}/slow.conf", SLOW_UNIT)
        self.run("systemctl", "daemon-reload")
        self.set_keys(queue="afxdp", interface="xts0", peer_mac=mac_of(HOST_INTERFACE), queues="0", token_key=TOKEN_KEY)
        self.run("systemctl", "restart", "xts-proxy", check=False)
        assert self.run("systemctl", "is-active", "xts-proxy", check=False) == "active\n", self.journal()

    # --- what is done there ----------------------------------------------------------------------------

    def run(self, *command: str, timeout_s: float = COMMAND_S, check: bool = True) -> str:
        """What a command of root says there."""
        request = self.folder / f"machine/requests/{next(self._numbers)}.request"
        part = request.with_suffix(".new")
        part.write_text(json.dumps({"command": command, "timeout_s": timeout_s}))
        part.rename(request)
        answer = request.with_suffix(".answer")
        self._wait(answer, timeout_s + 30)
        told: dict[str, Any] = json.loads(answer.read_text())
        assert told["status"] == 0 or not check, f"{' '.join(command)}: {told['said']}"
        return str(told["said"])

    def set_keys(self, configuration: str = CONFIGURATION, **values: object) -> None:
        """In a proxy's configuration, as installed."""
        lines = self.run("cat", configuration).splitlines()
        for key, value in values.items():
            at = next(number for number, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{key} = "))
            lines[at] = f"{key} = {json.dumps(value)}"
        self.write(configuration, "\n".join(lines) + "\n")

    def write(self, path: str, text: str) -> None:
        given = self.folder / "machine/given"
        given.write_text(text)
        self.run("cp", "/run/machine/given", path)

    @contextlib.contextmanager
    def second_proxy(self, reliable: str = "off") -> Iterator[None]:
        """Inside, the third card has a proxy, too, as deploy/docs/how-to/install.md says for several interfaces. With
        `reliable` "on" frames that its wire loses are sent again."""
        self.run("cp", "--preserve", CONFIGURATION, SECOND_CONFIGURATION)
        keys = {"interface": "xts1", "control": SECOND_CONTROL, "steering": "none", "reliable": reliable}
        self.set_keys(SECOND_CONFIGURATION, peer_mac=mac_of(SWITCHED_INTERFACE), **keys)
        self.run("systemctl", "start", SECOND, check=False)
        try:
            assert self.run("systemctl", "is-active", SECOND, check=False) == "active\n", self.journal(SECOND)
            yield
        finally:
            self.run("systemctl", "stop", SECOND)

    def status(self, *options: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.run("xts-proxy", "status", "--json", *options))
        return told

    def journal(self, unit: str = "xts-proxy") -> str:
        return self.run("journalctl", "--no-pager", "--lines=60", f"--unit={unit}", check=False)

    def log(self) -> str:
        """What the boot has said."""
        return (self.folder / "log").read_text()[-3000:]

    # --- the host --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def agent(self, *options: str, interface: str = HOST_INTERFACE, peer_mac: str = XTS_MAC) -> Iterator[str]:
        """The host's agent: its endpoint."""
        endpoint = str(self.folder / "endpoint.sock")
        given = {"interface": interface, "peer-mac": peer_mac, "endpoint": endpoint, "queues": "1"}
        given["token-key"] = str(self.key)
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        command = entered(HOST, sys.executable, "-m", "xts_agent", *words, *options)
        log = self.folder / "agent"
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                until = time.monotonic() + 20 * EMULATED
                while "ready" not in log.read_text():
                    assert process.poll() is None and time.monotonic() < until, log.read_text()
                    time.sleep(0.02)
                yield endpoint
            finally:
                process.terminate()
                process.wait(20 * EMULATED)

    def environment(self, endpoint: str) -> dict[str, str]:
        return os.environ | {"XTS_ENDPOINT": endpoint}
