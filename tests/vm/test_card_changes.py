"""What people do to a network card while it carries queues: `ethtool`, another MTU, down and up, promiscuous mode, a
driver that is unbound and bound, VLAN devices and bonds. In the machine of `tests/vm/run --nics`, whose virtio cards
have one queue each, on Debian's kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.card_lab import MACS, CardLab, found, missing
from beds.echo_server import ECHO
from beds.lab import skip_without_lab
from beds.operated_proxy import wait
from beds.transfer import TRANSFER
from xts_lab import lab as lab_module
from xts_lab import topology

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S = 120.0  # the processor is emulated
HOST, DEVICE = topology.HOST_XTS, topology.DPU_XTS
ENDS = pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])


@pytest.fixture(scope="module")
def lab() -> Iterator[CardLab]:
    skip_without_lab("afxdp")
    if reason := missing():
        pytest.skip(reason)
    patched = pytest.MonkeyPatch()
    patched.setattr(lab_module, "START_TIMEOUT_S", BACK_S)
    made = CardLab(f"t{os.getpid()}cards", queue="afxdp", relayed_max=0, reliable=True, mtu=1500)
    made.up()
    try:
        yield made
    finally:
        made.down()
        patched.undo()


@pytest.fixture(scope="module")
def port(lab: CardLab) -> Iterator[str]:
    with lab.popen("net", [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def done(lab: CardLab, end: topology.End, *words: str) -> subprocess.CompletedProcess[str]:
    return lab.run(end.role, list(words), capture_output=True, text=True, timeout=60)


def transfer(lab: CardLab, port: str, end: topology.End, *commands: str) -> list[int]:
    """The commands' exit statuses, while a program sent both ways; AssertionError: a byte was lost."""
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        program = stack.enter_context(lab.popen("host", [sys.executable, "-c", TRANSFER, port], text=True, **pipes))
        stack.callback(program.kill)
        assert program.stdout and program.stdout.readline() == "begun\n"
        statuses = [done(lab, end, *command.split()).returncode for command in commands]
        assert program.communicate("\n", timeout=200)[0] == "as it was sent\n", lab.tail("agent") + lab.tail("proxy")
    return statuses


def serves(lab: CardLab, port: str) -> None:
    """Sooner or later a program is served."""

    def answered() -> bool:
        command = [sys.executable, "-c", TRANSFER, port]
        asked = lab.run("host", command, input="\n", capture_output=True, text=True, timeout=200)
        return asked.stdout.endswith("as it was sent\n")

    wait(answered, f"service:\n{lab.tail('agent')}{lab.tail('proxy')}", BACK_S)


@ENDS
def test_settings_of_ethtool(lab: CardLab, port: str, end: topology.End) -> None:
    """Rings of another size, and offloads: the driver stops its queues for it."""
    name = end.interface
    commands = [f"ethtool -G {name} rx {size} tx {size}" for size in (128, 256)]
    commands += [f"ethtool -K {name} gro {how}" for how in ("off", "on")]
    assert transfer(lab, port, end, *commands, f"ethtool -L {name} combined 1") == [0] * 5


@ENDS
def test_down_and_up(lab: CardLab, port: str, end: topology.End) -> None:
    assert transfer(lab, port, end, *(f"ip link set {end.interface} {how}" for how in ("down", "up"))) == [0, 0]


@ENDS
def test_promiscuous_mode(lab: CardLab, port: str, end: topology.End) -> None:
    assert transfer(lab, port, end, *(f"ip link set {end.interface} promisc {how}" for how in ("on", "off"))) == [0, 0]


@ENDS
def test_another_mtu(lab: CardLab, port: str, end: topology.End) -> None:
    for mtu in ("1400", "1500"):
        assert done(lab, end, "ip", "link", "set", end.interface, "mtu", mtu).returncode == 0
        serves(lab, port)


@ENDS
def test_the_driver_is_bound_again(lab: CardLab, port: str, end: topology.End) -> None:
    """The interface goes, and comes back where it came from at first; whoever looks after interfaces names it."""
    device = done(lab, end, "readlink", "-f", f"/sys/class/net/{end.interface}/device").stdout.strip()
    number = Path(device).name if "virtio" in device else virtio_of(MACS[end])
    driver = Path("/sys/bus/virtio/drivers/virtio_net")
    (driver / "unbind").write_text(number)
    program = "agent" if end is HOST else "proxy"
    wait(lambda: f"{end.interface} is not there" in lab.tail(program, 60), "line in the log", BACK_S)
    (driver / "bind").write_text(number)
    wait(lambda: MACS[end] in found(), "interface", BACK_S)
    lab.put_card(end)
    serves(lab, port)
    assert f"{end.interface} was made again" in lab.tail(program, 60)


def virtio_of(mac: str) -> str:
    """The number of the card with this address, in sysfs of a network namespace that does not have it."""
    at = sorted(MACS.values()).index(mac)
    nets = sorted(
        folder.name for folder in Path("/sys/bus/virtio/drivers/virtio_net").iterdir() if "virtio" in folder.name
    )
    return nets[at]


@pytest.mark.parametrize(("kind", "words"), [("vlan", "is a VLAN device, and an XDP"), ("bond", "is a bond, whose")])
def test_what_is_made_of_cards(lab: CardLab, kind: str, words: str) -> None:
    more = {"vlan": ["link", "eth0", "name", "other0", "type", "vlan", "id", "5"], "bond": ["other0", "type", "bond"]}
    subprocess.run(["modprobe", "-a", "8021q", "bonding"], check=False)
    made = done(lab, topology.NET, "ip", "link", "add", *more[kind])
    assert made.returncode == 0, made.stderr
    try:
        command = [
            sys.executable,
            "-m",
            "xts_agent",
            "--interface",
            "other0",
            "--endpoint",
            str(lab.directory / "other"),
        ]
        answer = done(lab, topology.NET, *command, "--peer-mac", "02:00:00:00:00:02")
    finally:
        done(lab, topology.NET, "ip", "link", "del", "other0")
    assert answer.returncode == 2 and f"other0 {words}" in answer.stderr
