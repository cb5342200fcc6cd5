"""What tenants are guaranteed of the machine, and what `xts-proxy --check` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_proxy.config.config import parse
from xts_proxy.config.config_tenant import Guarantees, Tenant, effective
from xts_proxy.tenants.guarantees import Machine, common_ports, guarantees, machine_of, warnings

FIRST, PORTS = 32768, 28232
MACHINE = Machine(10_000, 4096, PORTS, FIRST)


def table(*given: int | None, weight: int = 100) -> list[Tenant]:
    tenants = [Tenant(name=f"t{i}", weight=weight, guaranteed=Guarantees(local_ports=n)) for i, n in enumerate(given)]
    return effective(tenants)


def said(text: str, machine: Machine = MACHINE) -> list[str]:
    return list(warnings(parse(text, "f")[0], machine))


def tenants(count: int, more: str = "") -> str:
    return "".join(f'[[tenant]]\nname = "t{i}"\nusers = ["{i + 1000}"]\n{more}' for i in range(count))


WANTED = st.lists(st.none() | st.integers(0, 65535), min_size=1, max_size=20)


@given(WANTED, st.integers(1, PORTS), st.integers(1, 10_000))
def test_parts_are_next_to_each_other_and_something_is_left(wanted: list[int | None], ports: int, weight: int) -> None:
    found = table(*wanted, weight=weight)
    machine = Machine(1, 1, ports, FIRST)
    parts = list(guarantees(found, machine).values())
    place = FIRST
    for part, tenant in zip(parts, found, strict=True):
        assert part.first_port == place
        assert part.local_ports <= (ports if tenant.guaranteed.local_ports is None else tenant.guaranteed.local_ports)
        place += part.local_ports
    assert common_ports(found, machine) == (place, FIRST + ports - 1)
    assert place < FIRST + ports


def test_half_is_divided_by_weight_and_the_rest_is_everybodys() -> None:
    found = effective([Tenant(name="web", weight=300)])
    parts = guarantees(found, MACHINE)
    assert [parts[name].ports for name in ("web", "default")] == [(32768, 43354), (43355, 46883)]
    assert common_ports(found, MACHINE) == (46884, 60999)


def test_a_tenant_that_is_alone_has_all() -> None:
    assert guarantees(table(), MACHINE)["default"].ports == (0, 0)
    assert common_ports(table(), MACHINE) == (FIRST, FIRST + PORTS - 1)


def test_ports_that_are_not_known_are_not_divided() -> None:
    nothing = Machine(10_000, 4096)
    assert {part.ports for part in guarantees(table(5), nothing).values()} == {(0, 0)}
    assert common_ports(table(5), nothing) == (0, 0)


def test_what_the_kernel_says_is_believed() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert machine_of(parse("", "f")[0], 1000).ports in ((first, last), (0, 0))


@pytest.mark.parametrize(
    ("text", "machine", "warning"),
    [
        (tenants(1), MACHINE, None),
        (tenants(40), MACHINE, "41 of 41 tenants are guaranteed fewer than 512 local ports, t0 344: a closed"),
        (tenants(1, "weight = 9900\n"), MACHINE, "1 of 2 tenants are guaranteed fewer than 512 local ports, default"),
        (tenants(1, "guaranteed = { local_ports = 10 }\n"), MACHINE, None),
        (tenants(2, "guaranteed = { local_ports = 14116 }\n"), MACHINE, "guaranteed 32937 local ports together, and"),
        (tenants(1), Machine(10_000, 4096), "this kernel cannot divide local ports among tenants"),
        ("", Machine(10_000, 4096), None),
    ],
)
def test_what_there_is_to_warn_of(text: str, machine: Machine, warning: str | None) -> None:
    found = said(text, machine)
    assert len(found) == (warning is not None)
    assert warning is None or warning in found[0]
