"""The dashboard and the alert rules name metrics and labels that there are, and promtool accepts the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from beds import dashboard
from xts_agent import metric_catalogue as of_agent
from xts_messages.metrics.metric import Metric
from xts_proxy.metrics import metric_catalogue as of_proxy

#: Those that Prometheus gives to all series of a target.
OF_TARGETS = {"instance", "job"}
EVERY = [*dashboard.queries(), *dashboard.alerts().items()]


def known() -> dict[str, set[str]]:
    """Name of a series -> its labels."""
    found: dict[str, set[str]] = {}

    def add(metric: Metric, of_row: tuple[str, ...]) -> None:
        labels = {*of_row, metric.label} - {""}
        if metric.kind == "histogram":
            found[f"{metric.name}_bucket"] = labels | {"le"}
            found[f"{metric.name}_sum"] = found[f"{metric.name}_count"] = labels
        found[metric.series] = labels

    for of_row, metrics in (*of_proxy.PARTS.values(), *of_agent.PARTS.values()):
        for metric in metrics:
            add(metric, of_row)
    return found


@pytest.mark.parametrize(("name", "expression"), EVERY)
def test_its_series_and_labels_are_there(name: str, expression: str) -> None:
    there = known()
    named = dashboard.series(expression)
    assert named <= set(there), f"{name}: {named - set(there)}"
    assert named or expression.startswith("up{")
    of_all = set().union(*(there[one] for one in named)) | OF_TARGETS
    assert dashboard.labels(expression) <= of_all, f"{name}: {dashboard.labels(expression) - of_all}"
    for one in re.findall(r"(xts_\w+_total|xts_\w+_bucket)", expression):
        assert re.search(rf"(rate|increase|changes)\({one}", expression), f"{name}: {one} counts up for ever"


def test_an_unknown_metric_would_be_noticed() -> None:
    assert dashboard.series('sum(rate(xts_unknown_total{a="xts_b"}[5m])) / xts_other') == {
        "xts_unknown_total",
        "xts_other",
    }
    assert dashboard.labels('sum by (a, b) (x{c=~"d", e="f"})') == {"a", "b", "c", "e"}


def test_panels_have_places_and_units_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    found = json.loads(dashboard.DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    for panel in dashboard.panels():
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            bytes_ = "_bytes" in target["expr"]
            assert bytes_ == (unit in ("Bps", "bytes")), panel["title"]


def test_every_alert_has_a_test_a_severity_and_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(dashboard.ALERTS.read_text())["groups"] for rule in group["rules"]]
    tested = [
        case for test in yaml.safe_load(dashboard.ALERTS_TEST.read_text())["tests"] for case in test["alert_rule_test"]
    ]
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}
        said = [bool(case["exp_alerts"]) for case in tested if case["alertname"] == rule["alert"]]
        assert sorted(said) == [False, True], f"{rule['alert']}: once said and once not"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus)")
@pytest.mark.parametrize("command", [["check", "rules", "xts-alerts.yml"], ["test", "rules", "xts-alerts-test.yml"]])
def test_promtool_accepts_the_rules(command: list[str]) -> None:
    ended = subprocess.run(
        ["promtool", *command], cwd=dashboard.FOLDER, check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
