"""Writes what the Helm chart has from elsewhere: `PYTHONPATH=deploy python -m xts_docs.chart [--check]`.

- values.schema.json: which keys `agent.settings` and `proxy.settings` may have, out of the declarations by which agent
  and proxy read their files. All else in it is written by hand.
- README.md of the chart: a table of values.yaml.
- deploy/docs/rendered-chart.md: what helm makes of it. Only where there is helm: in PATH, or where a test has put it.

With --check nothing is written; the exit status is 1 when a file that is committed differs.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from xts_agent.config import AgentConfig
from xts_messages.generate import generated
from xts_messages.settings.config_mistakes import needed
from xts_proxy.config.config import PARSED, Proxy

from .markdown import TOP

CHART = "deploy/helm/xts"
RENDERED = "deploy/docs/rendered-chart.md"
#: Where tests/beds/helm.py puts it.
TESTS_HELM = TOP / "build/helm/helm"
_METRICS = ("metrics", "metrics_certificate", "metrics_key", "metrics_token")
#: Keys that the chart sets itself, out of other values.
OWN = {
    "agent": (*_METRICS, "token_key", "log_format", "interface", "peer_mac", "endpoint", "pods", "pods_only"),
    "proxy": (
        *(*_METRICS, "token_key", "log_format", "interface", "peer_mac", "queue", "endpoint", "control"),
        *("drain_timeout_s", "upgrade_key"),
    ),
}
DECLARED = {"agent": AgentConfig, "proxy": Proxy}
#: The values that the rendered chart is shown with.
SHOWN = {
    "agent.interface": "xts0",
    "agent.peerMac": "02:00:00:00:00:01",
    "agent.settings.per_uid_max": "3",
    "proxy.enabled": "true",
    "proxy.interface": "pf0hpf",
    "proxy.peerMac": "02:00:00:00:00:02",
}

# --- the schema ----------------------------------------------------------------------------------------


def schema_text() -> str:
    """The schema that is there, with the settings of today."""
    schema = json.loads((TOP / CHART / "values.schema.json").read_text())
    for part, declared in DECLARED.items():
        schema["properties"][part]["properties"]["settings"] = settings_schema(declared, OWN[part])
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def settings_schema(declared: Any, own: tuple[str, ...]) -> dict[str, Any]:
    """The keys of a struct without those that the chart sets itself."""
    fields = [field for field in msgspec.structs.fields(declared) if field.name not in own]
    return {
        "$comment": f"made of {declared.__module__} by xts_docs.chart",
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: _schema(field) for field in fields},
    }


def _schema(field: Any) -> dict[str, Any]:
    kind = needed(field.type)
    made = {"type": "string", "description": kind.expected} if kind in PARSED else _for_helm(msgspec.json.schema(kind))
    default = field.default
    if default not in (msgspec.NODEFAULT, None):
        made["default"] = default if isinstance(default, bool | int | float | str) else str(default)
    return made


def _for_helm(made: dict[str, Any]) -> dict[str, Any]:
    """helm is a program in Go, whose patterns repeat nothing more than 1000 times: the length is given in its place."""
    long = re.search(r"\{0,(\d{4,})\}", made.get("pattern", ""))
    if not long:
        return made
    return made | {"pattern": made["pattern"].replace(long[0], "*"), "maxLength": int(long[1]) + 1}


# --- the page of the chart -----------------------------------------------------------------------------

_ABOUT = """\
# The chart xts

Runs the agent and the device plug-in on the nodes of a Kubernetes cluster that have applications,
and the proxy on DPUs that are nodes. The steps are in
[Run it on Kubernetes](../../docs/how-to/kubernetes.md).
[What it makes](../../docs/rendered-chart.md) can be looked at without helm and without a cluster.

<!-- not run: needs a cluster -->
```sh
helm install xts deploy/helm/xts --namespace xts --create-namespace \\
  --set agent.interface=xts0 --set agent.peerMac=02:00:00:00:00:01
```

helm refuses a value that is unknown. That includes the keys of `agent.settings`
([xts-agent.toml](../../xts-agent.toml)) and of `proxy.settings` (`[proxy]` of
[xts-proxy.toml](../../xts-proxy.toml)). `proxy.tables` is a text: the proxy checks it before it
starts.

| value | default | meaning |
|---|---|---|
"""


def readme_text() -> str:
    """README.md of the chart."""
    rows = [f"| `{path}` | {f'`{default}`' if default else ''} | {text} |" for path, default, text in values()]
    return _ABOUT + "\n".join(rows).replace("\\|", "|") + "\n"


def values() -> Iterator[tuple[str, str, str]]:
    """Path, default and meaning of each value, in the order of values.yaml. A meaning is the comment above it, or above
    the values that it is the first of."""
    path: list[str] = []
    comment: list[str] = []
    block = -1  # the indentation of a text of several lines
    for line in (TOP / CHART / "values.yaml").read_text().splitlines()[1:]:
        indent = len(line) - len(line.lstrip())
        if block >= 0 and (indent > block or not line.strip()):
            continue
        block = -1
        key = re.match(r"\s*([A-Za-z]+):\s*(.*)$", line)
        if key:
            path[indent // 2 :] = [key[1]]
            block = indent if key[2] == "|" else -1
            if key[2] or comment:
                yield ".".join(path), "a text" if block >= 0 else key[2].replace("|", "\\|"), " ".join(comment)
        elif odd := re.match(r"\s*([a-z.]+/[a-z]+: .*)$", line):  # a label, below the key that has nothing else
            yield ".".join(path[: indent // 2]), f"{{{odd[1]}}}", ""
        comment = [*comment, line.strip().removeprefix("# ")] if line.strip().startswith("#") else []


# --- the rendered chart --------------------------------------------------------------------------------

_RENDERED = """\
# What the Helm chart makes

This page is for people who want to see the objects before they install the chart
([how](how-to/kubernetes.md)). It is what helm prints for this command:

<!-- not run: needs helm; a test compares the output with this page -->
```sh
{command}
```

{objects}
"""


def command(program: str) -> list[str]:
    """What renders the chart with the values that are shown."""
    settings = [part for name, value in SHOWN.items() for part in ("--set", f"{name}={value}")]
    return [program, "template", "xts", CHART, "--namespace", "xts", *settings]


def rendered_text(output: str) -> str:
    """The page for helm's output: a heading for each object."""
    parts = re.split(r"^---\n", output.strip() + "\n", flags=re.MULTILINE)
    objects = [_object(part) for part in parts if part.strip()]
    shown = " ".join(command("helm")).replace(" --namespace", " \\\n  --namespace").replace(" --set", " \\\n  --set")
    return _RENDERED.format(command=shown, objects="\n\n".join(objects))


def _object(text: str) -> str:
    source, _, body = text.partition("\n")
    template = source.removeprefix("# Source: xts/")
    kind, name = (re.search(rf"^ *{key}: (\S+)", body, re.MULTILINE) for key in ("kind", "name"))
    assert kind and name, text
    where = f"[{template}](../helm/xts/{template})"
    shown = "\n".join(line.rstrip() for line in body.strip().splitlines())
    return f"## {kind[1]} {name[1]}\n\nFrom {where}.\n\n```text\n{shown}\n```"


def _render(program: str) -> str:
    done = subprocess.run(command(program), cwd=TOP, capture_output=True, text=True, check=True)
    return rendered_text(done.stdout)


def main(argv: list[str] | None = None) -> int:
    """Writes or checks; returns the exit status."""
    outputs = {f"{CHART}/values.schema.json": schema_text, f"{CHART}/README.md": readme_text}
    program = shutil.which("helm") or (str(TESTS_HELM) if TESTS_HELM.exists() else "")
    if program:
        outputs[RENDERED] = partial(_render, program)
    else:
        print(f"there is no helm here: {RENDERED} is left as it is", file=sys.stderr)
    return generated.main("xts_docs.chart", __doc__, outputs, argv)


if __name__ == "__main__":
    sys.exit(main())
