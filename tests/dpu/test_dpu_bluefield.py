"""`xts-bluefield` of the packages on the emulated Arm machine: what a virtual card has not is named, and a mistake in
the file changes nothing."""

from __future__ import annotations

import pytest
from beds.dpu_machine import Dpu

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(4800)]
FILE = "/etc/xts/xts-bluefield.toml"
LINK = """
role = "device"

[[link]]
interface = "xts0"
queues = 1
"""


def told(dpu: Dpu, *words: str, status: int = 0) -> str:
    """What the command says. It ends with this status."""
    said = dpu.run("sh", "-c", '"$@"; echo "status $?"', "sh", "xts-bluefield", *words, timeout_s=300)
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
