"""The dashboard against Grafana's own schema, as Grafana's library (grafana-foundation-sdk) has it for one version.

The library reads a dashboard into classes that are generated from the schema. It drops keys that it does not know, and
takes values of any type. So the test writes the dashboard again, and nothing may be missing; and it compares each value
with the type that its class declares. Queries, thresholds and options of each kind of panel have classes, too.
"""

from __future__ import annotations

import copy
import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from beds.dashboard import DASHBOARD
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as schema
from grafana_foundation_sdk.models import units

register_default_plugins()
#: The names of all units that Grafana can show.
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}


def read() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text()))


def fits(value: object, wanted: Any) -> bool:
    """Is the value of this type? An enumeration's value may also be what stands for it in JSON."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        fit = any(fits(value, part) for part in parts)
    elif origin is typing.Literal:
        fit = value in parts
    elif origin is list:
        fit = isinstance(value, list) and all(fits(each, parts[0]) for each in value)
    elif origin is dict:
        fit = isinstance(value, dict) and all(fits(each, parts[1]) for each in value.values())
    elif wanted in (int, float):
        fit = isinstance(value, int | wanted) and not isinstance(value, bool)
    elif isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        fit = value in list(wanted)
    else:
        fit = wanted in (Any, object) or isinstance(value, wanted)
    return fit


def of_wrong_type(part: object, where: str = "dashboard") -> Iterator[str]:
    """Each value in it that has not the type of the schema, and where."""
    if isinstance(part, list):
        for number, each in enumerate(part):
            yield from of_wrong_type(each, f"{where}[{number}]")
    elif type(part).__module__.startswith(schema.__package__ or "?") and not isinstance(part, enum.Enum):
        for name, wanted in typing.get_type_hints(type(part)).items():
            value = getattr(part, name)
            if not fits(value, wanted):
                yield f"{where}.{name}: {value!r}"
            yield from of_wrong_type(value, f"{where}.{name}")


def not_known(ours: object, again: object, where: str = "dashboard") -> Iterator[str]:
    """What the library has not kept, for it is not in the schema."""
    if isinstance(ours, dict) and isinstance(again, dict):
        for key, value in ours.items():
            if key in again:
                yield from not_known(value, again[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}"
    elif isinstance(ours, list) and isinstance(again, list) and len(ours) == len(again):
        for number, (mine, theirs) in enumerate(zip(ours, again, strict=True)):
            yield from not_known(mine, theirs, f"{where}[{number}]")
    elif ours != again:
        yield where


def mistakes(dashboard: dict[str, Any]) -> list[str]:
    known = schema.Dashboard.from_json(copy.deepcopy(dashboard))
    again = json.loads(json.dumps(known, cls=JSONEncoder))
    return [*not_known(dashboard, again), *of_wrong_type(known)]


def test_it_is_as_the_schema_says() -> None:
    assert mistakes(read()) == []


def test_units_are_grafanas() -> None:
    named = {panel["fieldConfig"]["defaults"]["unit"] for panel in read()["panels"] if panel["type"] != "row"}
    assert named and named <= UNITS


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ((), {"refreshes": "30s"}, "dashboard.refreshes"),
        (("panels", 2), {"titel": "x"}, "dashboard.panels[2].titel"),
        (("panels", 2, "gridPos"), {"x": "0"}, "dashboard.panels[2].grid_pos.x: '0'"),
        (("panels", 2, "options", "tooltip"), {"mode": "many"}, "dashboard.panels[2].options.tooltip.mode: 'many'"),
        (("panels", 2, "targets", 0), {"expr": 5}, "dashboard.panels[2].targets[0].expr: 5"),
        (("panels", 2, "targets", 0), {"query": "up"}, "dashboard.panels[2].targets[0].query"),
        (("templating", "list", 1), {"multi": "yes"}, "dashboard.templating.list_val[1].multi: 'yes'"),
    ],
)
def test_a_mistake_is_noticed(path: tuple[str | int, ...], value: dict[str, object], where: str) -> None:
    dashboard = read()
    part: Any = dashboard
    for key in path:
        part = part[key]
    part.update(value)
    assert mistakes(dashboard) == [where]
