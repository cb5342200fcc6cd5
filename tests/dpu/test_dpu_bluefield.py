"""`xts-bluefield` of the packages on the emulated Arm machine: a whole file is applied and taken back, as far as a
virtual card goes; what such a card has not is named, and a mistake in the file changes nothing."""

from __future__ import annotations

import errno
import socket

import pytest
from beds.dpu_machine import DEVICE_ADDRESS, NET, Dpu
from beds.dpu_programs import running, says, transferred, until, visit
from beds.patience import EMULATED
from xts_lab import netns

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(4800)]
FILE = "/etc/xts/xts-bluefield.toml"
LINK = """
role = "device"

[[link]]
interface = "xts0"
queues = 1
"""

#: All tables but those of firmware and boot: [card] needs a card, [cpus] GRUB.
WHOLE = """
role = "device"

[[link]]
interface = "xts0"
queues = 1

[memory]
page_kb = 2048
pages = 8

[firewall]
uplink = "uplink"
tcp_ports = [8092]

[units]
boot = true
cpus = "1"
"""
OPEN_PORT, CLOSED_PORT = 8092, 8093
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"


def told(dpu: Dpu, *words: str, status: int = 0) -> str:
    """What the command says. It ends with this status."""
    said = dpu.run("sh", "-c", '"$@"; echo "status $?"', "sh", "xts-bluefield", *words, timeout_s=60 * EMULATED)
    assert said.endswith(f"status {status}\n"), said
    return said


@pytest.mark.parametrize(
    "more, why",
    [
        ('irq_cpus = "1"', "xts0: no interrupts in /sys/class/net/xts0/device/msi_irqs or irqs; leave out irq_cpus"),
        ('host = "pf0hpf"\nrepresentor = "xts1"\nsteering = "ovs"\nbridge = "br"', "ovs-vsctl is not installed"),
    ],
)
def test_what_such_a_card_has_not_is_named(dpu: Dpu, more: str, why: str) -> None:
    dpu.write(FILE, LINK + more)
    assert why in told(dpu, "plan", FILE, status=1)


def test_a_mistake_in_the_file_changes_nothing(dpu: Dpu) -> None:
    dpu.write(FILE, LINK.replace("queues", "queue"))
    said = told(dpu, "apply", "--yes", FILE, status=2)
    assert f"{FILE}:6:9: link[0].queue: unknown key; did you mean queues?" in said


def knock(port: int) -> int:
    """The errno of a visitor from the network to whom nobody answers; 0: somebody does."""
    with netns.inside(NET):
        made = socket.socket()
    with made:
        made.settimeout(2 * EMULATED)
        try:
            return made.connect_ex((DEVICE_ADDRESS, port))
        except TimeoutError:
            return errno.ETIMEDOUT


def served(dpu: Dpu, endpoint: str) -> None:
    """The proxy has started again: both ways, through the firewall, if there is one."""
    until(lambda: transferred(dpu, endpoint, 100_000) == "the same", "transfer")
    with running(dpu, endpoint, "echo_server.py", DEVICE_ADDRESS, OPEN_PORT) as process:
        assert says(process) == "up"
        assert visit(OPEN_PORT) == b"a visitor"


def test_a_whole_file_is_applied_and_taken_back(dpu: Dpu, relayed: str, server: None) -> None:
    assert knock(CLOSED_PORT) == errno.ECONNREFUSED
    before = dpu.run("cat", PAGES)
    dpu.write(FILE, WHOLE)
    told(dpu, "plan", FILE)
    told(dpu, "check", FILE, status=1)
    try:
        told(dpu, "apply", "--yes", FILE)
        assert "0 settings changed." in told(dpu, "apply", "--yes", FILE)
        assert "Everything is as the file wants it." in told(dpu, "check", FILE)
        assert dpu.run("cat", PAGES) == "8\n"
        # The unit that applies it at each boot is there now, and comes before the proxy.
        dpu.run("systemctl", "restart", "xts-proxy")
        shown = dpu.run("systemctl", "show", "--property=ActiveState,Result", "xts-bluefield")
        assert set(shown.split()) == {"ActiveState=active", "Result=success"}, dpu.journal("xts-bluefield")
        assert dpu.run("systemctl", "show", "--value", "--property=CPUAffinity", "xts-proxy") == "1\n"
        served(dpu, relayed)
        assert knock(CLOSED_PORT) in (errno.ETIMEDOUT, errno.EAGAIN)
    finally:
        said = told(dpu, "undo", "--yes")
    assert "settings set back." in said
    assert dpu.run("cat", PAGES) == before
    assert knock(CLOSED_PORT) == errno.ECONNREFUSED
    told(dpu, "check", FILE, status=1)
    dpu.run("systemctl", "restart", "xts-proxy")
    served(dpu, relayed)
