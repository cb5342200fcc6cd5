"""The schema of a PodMonitor, which is no part of Kubernetes' API: the Prometheus operator defines it.

A package of PyPI has models that were generated from the operator's own definitions (CRDs). They are classes of
pydantic, which writes them as a JSON schema. The package and what it needs are installed for that alone: the schema is
what is kept, in build/helm. A test is skipped where the package cannot be had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import jsonschema
import pytest

from .helm import CACHE, Wheel, fetched

MODELS = Wheel(
    "cloudcoil-models-prometheus-operator==0.80.1.0", "a139a60cc0114caace847a34275d7a7cd899ec2dad4120504d8e1cf6a8de0270"
)  # of Prometheus operator 0.80.1
BASE = "cloudcoil==0.6.0"
WRITE_SCHEMA = """
import json, sys
from cloudcoil.models.prometheus_operator.v1 import PodMonitor
json.dump(PodMonitor.model_json_schema(), sys.stdout)
"""


def check(made: dict[str, Any]) -> None:
    """A PodMonitor; unknown fields and null are mistakes. jsonschema.ValidationError: what is wrong, and where."""
    jsonschema.Draft202012Validator(_strict(_schema())).validate(made)


def _schema() -> Any:
    path = CACHE / f"pod-monitor-{MODELS.requirement.rpartition('=')[2]}.json"
    if not path.exists():
        models = fetched(MODELS)
        with tempfile.TemporaryDirectory() as folder:
            install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            _run(*install, "--target", folder, str(models), BASE)
            text = _run("-c", WRITE_SCHEMA, PYTHONPATH=folder)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.rename(path)
    return json.loads(path.read_text())


def _run(*arguments: str, **environment: str) -> str:
    """What Python writes. Skips the test where it fails, which is where packages cannot be installed."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the schema of PodMonitor cannot be made: {done.stderr[-300:]}")
    return done.stdout


def _strict(part: Any) -> Any:
    """As the API server checks a new object with --validate=strict."""
    if isinstance(part, list):
        return [_strict(one) for one in part if one != {"type": "null"}]
    if not isinstance(part, dict):
        return part
    made = {key: _strict(value) for key, value in part.items()}
    if "properties" in part and isinstance(part.get("title"), str):
        made.setdefault("additionalProperties", False)
    return made
