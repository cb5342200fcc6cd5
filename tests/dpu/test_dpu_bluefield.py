"""`xts-bluefield` of the packages on the emulated Arm machine, as far as a virtual card goes: no eswitch and no
functions, but an interface with XDP, memory, a firewall, and units of systemd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from beds.dpu_machine import DEVICE_ADDRESS, Dpu
from beds.dpu_programs import running, says, transferred, until, visit

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(4800)]
FILE = "/etc/xts/xts-bluefield.toml"
OPEN_PORT, CLOSED_PORT = 8092, 8093
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
LINK = """
role = "device"

[[link]]
interface = "xts0"
queues = 1
"""
WHOLE = f"""{LINK}
[memory]
page_kb = 2048
pages = 3

[firewall]
uplink = "uplink"
tcp_ports = [{OPEN_PORT}]

[units]
boot = true
cpus = "1"
"""
UNIT, DROP_IN = "xts-bluefield.service", "/etc/systemd/system/xts-proxy.service.d/50-xts-bluefield.conf"


def told(dpu: Dpu, *words: str, status: int = 0) -> str:
    """What the command says. It ends with this status."""
    said = dpu.run("sh", "-c", '"$@"; echo "status $?"', "sh", "xts-bluefield", *words, timeout_s=300)
    assert said.endswith(f"status {status}\n"), said
    return said


@pytest.fixture
def written(dpu: Dpu) -> Iterator[None]:
    dpu.write(FILE, WHOLE)
    yield
    dpu.run("rm", FILE)


def reaches(dpu: Dpu, endpoint: str, port: int) -> bool:
    """Does somebody in the network reach a program of the host that listens there?"""
    with running(dpu, endpoint, "echo_server.py", DEVICE_ADDRESS, port) as process:
        assert says(process) == "up"
        try:
            return visit(port) == b"a visitor"
        except TimeoutError:
            return False


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


def test_apply_check_and_undo(dpu: Dpu, written: None, server: None) -> None:
    """The proxy then starts behind the unit that applies the file, on its CPU, and hosts are served as before, on the
    ports of the file only. At the end nothing is left."""
    before = dpu.run("cat", PAGES)
    plan = told(dpu, "plan", FILE)
    assert "interface xts0: native XDP" in plan, plan
    told(dpu, "check", FILE, status=1)
    told(dpu, "apply", "--yes", FILE)
    try:
        told(dpu, "check", FILE)
        assert dpu.run("cat", PAGES) == "3\n"
        dpu.run("systemctl", "restart", "xts-proxy", timeout_s=300)
        assert dpu.run("systemctl", "is-active", UNIT, "xts-proxy").split() == ["active"] * 2, dpu.journal(UNIT)
        assert dpu.run("systemctl", "show", "--value", "--property=CPUAffinity", "xts-proxy").strip() == "1"
        with dpu.agent() as endpoint:
            assert transferred(dpu, endpoint, 100_000) == "the same"
            assert reaches(dpu, endpoint, OPEN_PORT)
            assert not reaches(dpu, endpoint, CLOSED_PORT)
    finally:
        told(dpu, "undo", "--yes")
    assert dpu.run("cat", PAGES) == before
    assert "xts_bluefield" not in dpu.run("nft", "list", "tables")
    assert "No such file" in dpu.run("ls", DROP_IN, check=False)
    dpu.run("systemctl", "restart", "xts-proxy", timeout_s=300)
    with dpu.agent() as endpoint:
        until(lambda: reaches(dpu, endpoint, CLOSED_PORT), "answer at a port that is not in the file")


def test_a_mistake_in_the_file_changes_nothing(dpu: Dpu) -> None:
    dpu.write(FILE, LINK.replace("queues", "queue"))
    said = told(dpu, "apply", "--yes", FILE, status=2)
    assert f"{FILE}:6:9: link[0].queue: unknown key; did you mean queues?" in said
