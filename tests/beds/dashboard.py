"""What the shipped dashboard and alert rules ask Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
ALERTS = FOLDER / "xts-alerts.yml"
ALERTS_TEST = FOLDER / "xts-alerts-test.yml"
DASHBOARD = FOLDER / "xts-dashboard.json"


def panels() -> list[dict[str, Any]]:
    """Of the dashboard; those that only group others are left out."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Of the dashboard: the panel's title, and what it asks."""
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def alerts() -> dict[str, str]:
    """What each alert is about."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def series(expression: str) -> set[str]:
    """The series of ours that it names."""
    return set(re.findall(r"\bxts_[a-z0-9_]+", re.sub(r'"[^"]*"', '""', expression)))


def labels(expression: str) -> set[str]:
    """The labels that it selects or groups by."""
    grouped = ",".join(re.findall(r"\bby \(([^)]*)\)", expression))
    selected = re.findall(r"(\w+)\s*=~?\s*\"", expression)
    return {name.strip() for name in grouped.split(",") if name.strip()} | set(selected)
