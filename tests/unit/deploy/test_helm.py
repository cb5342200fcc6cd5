"""The Helm chart: rendered by helm for each option, against the schemas of Kubernetes' API, and the programs' own
readers of the files in it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from beds import pod_monitor
from beds.helm import CHART, TOP, ApiSchemas, helm, render, run_helm
from xts_agent import config as agent_config
from xts_docs import chart
from xts_kubernetes import config as plugin_config
from xts_lab.certificate import self_signed
from xts_messages.version import __version__
from xts_proxy.config import config as proxy_config

AGENT = {"interface": "xts0", "peerMac": "02:00:00:00:00:01"}
PROXY = {"enabled": True, "interface": "pf0hpf", "peerMac": "02:00:00:00:00:02"}
METRICS = {"enabled": True, "podMonitor": {"enabled": True}}

#: Each option by itself, and what there is of it.
VARIANTS: dict[str, dict[str, Any]] = {
    "least": {"agent": AGENT},
    "proxy alone": {"agent": {"enabled": False}, "proxy": PROXY},
    "both": {"agent": AGENT, "proxy": PROXY},
    "takes over": {"agent": AGENT, "proxy": PROXY | {"upgradeSecret": "xts-upgrade"}, "metrics": METRICS},
    "several interfaces": {"agent": {"interface": ["a", "b"], "peerMac": [AGENT["peerMac"], PROXY["peerMac"]]}},
    "settings": {
        "agent": AGENT | {"settings": {"relayed_max": 200, "frame_window": 32, "exclusive": True, "user": 'a"b'}},
        "proxy": PROXY | {"settings": {"workers": 2, "cpus": [1, 2]}, "drainTimeoutSeconds": 5},
    },
    "tables": {
        "agent": AGENT,
        "tokenSecret": "xts-token",
        "proxy": PROXY
        | {"tables": '[[tenant]]\nname = "shop"\ncgroups = ["/kubernetes/shop"]\n\n[limits]\nconnections = 100\n'},
    },
    "no plug-in": {"agent": AGENT, "devicePlugin": {"enabled": False}},
    "everybody": {"agent": AGENT | {"podsOnly": False}},
    "interposer": {"agent": AGENT, "devicePlugin": {"interposer": {"enabled": True, "nodeDir": "/opt/xts"}}},
    "relayed": {"agent": AGENT, "devicePlugin": {"relayed": True, "resource": "example.com/q"}},
    "metrics": {"agent": AGENT, "proxy": PROXY, "metrics": METRICS},
    "metrics with TLS": {
        "agent": AGENT,
        "proxy": PROXY,
        "metrics": {
            "enabled": True,
            "address": "[::]",
            "tlsSecret": "tls",
            "tokenSecret": "token",
            "podMonitor": {"enabled": True, "serverName": "xts", "caConfigMap": "ca", "labels": {"release": "p"}},
        },
    },
    "metrics with TLS unchecked": {
        "agent": AGENT,
        "metrics": {"enabled": True, "tlsSecret": "tls", "podMonitor": {"enabled": True}},
    },
    "places": {
        "agent": AGENT
        | {
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {},
            "affinity": {"nodeAffinity": {}},
            "updateStrategy": "RollingUpdate",
            "maxUnavailable": "10%",
            "priorityClassName": "",
        },
        "image": {"repository": "r/x", "tag": "t", "pullSecrets": ["s"]},
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
    },
    "paths": {
        "agent": AGENT | {"runDir": "/run/a", "privateDir": "/run/b"},
        "devicePlugin": {"kubeletDir": "/data/kubelet", "podLogs": "/data/pods"},
    },
    "DRA": {"agent": AGENT, "devicePlugin": {"dra": {"enabled": True, "claimTemplates": ["shop", "farm"]}}},
    "DRA of another release, with the interposer": {
        "agent": AGENT,
        "proxy": PROXY,
        "serviceAccount": {"create": False, "name": "mine"},
        "devicePlugin": {
            "kubeletDir": "/data/kubelet",
            "interposer": {"enabled": True},
            "dra": {"enabled": True, "deviceClass": "", "driver": "q.example.com", "cdiDir": "/etc/cdi"},
        },
    },
    "an account of one's own": {"agent": AGENT, "serviceAccount": {"create": False, "name": "mine"}},
}


def of_kind(made: list[dict[str, Any]], kind: str, part: str = "") -> list[dict[str, Any]]:
    return [one for one in made if one["kind"] == kind and one["metadata"]["name"].endswith(part)]


def containers(workload: dict[str, Any]) -> list[dict[str, Any]]:
    spec = workload["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


#: Of the whole cluster.
WITHOUT_NAMESPACE = {
    *("DeviceClass", "ClusterRole", "ClusterRoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}


@pytest.fixture(scope="module")
def schemas() -> ApiSchemas:
    """Of the first release that has all of it."""
    return ApiSchemas("1.34")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant(name: str, schemas: ApiSchemas, tmp_path: Path) -> None:
    """All that holds whatever was asked for."""
    values = VARIANTS[name]
    made = render(values)
    for one in made:
        if one["kind"] not in ("ResourceClaimTemplate", *WITHOUT_NAMESPACE):
            assert one["metadata"]["namespace"] == "ns"
        (pod_monitor.check if one["kind"] == "PodMonitor" else schemas.check)(one)
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in made]
    assert len(names) == len(set(names))
    workloads = of_kind(made, "DaemonSet")
    assert len(workloads) == values["agent"].get("enabled", True) + values.get("proxy", {}).get("enabled", False)
    for workload in workloads:
        template = workload["spec"]["template"]
        chosen = workload["spec"]["selector"]["matchLabels"]
        assert chosen.items() <= template["metadata"]["labels"].items()
        check_pod(template["spec"], made)
    for config in of_kind(made, "ConfigMap", "-agent"):
        agent_config.parse(config["data"]["xts-agent.toml"], "xts-agent.toml", {})
    for config in of_kind(made, "ConfigMap", "-proxy"):
        path = tmp_path / "xts-proxy.toml"
        path.write_text(config["data"]["xts-proxy.toml"].replace('"/etc/', f'"{tmp_path}/'))
        lay_out_secrets(tmp_path)
        proxy_config.read(path)


def lay_out_secrets(folder: Path) -> None:
    """As the API server would: the proxy's reader opens them."""
    for name in ("xts-metrics-token", "xts-metrics-tls"):
        (folder / name).mkdir()
    (folder / "xts-metrics-token" / "token").write_text("0123456789abcdef")
    made = self_signed(folder, "made", "xts")
    made.certificate.rename(folder / "xts-metrics-tls" / "tls.crt")
    made.key.rename(folder / "xts-metrics-tls" / "tls.key")


def check_pod(spec: dict[str, Any], made: list[dict[str, Any]]) -> None:
    """What each pod has: no token of the API, a right for each use of root's, and nothing mounted that is not there."""
    assert spec["automountServiceAccountToken"] is False
    accounts = {one["metadata"]["name"] for one in of_kind(made, "ServiceAccount")}
    assert spec["serviceAccountName"] in accounts | {"mine"}
    volumes = {volume["name"] for volume in spec["volumes"]}
    maps = {one["metadata"]["name"] for one in of_kind(made, "ConfigMap")}
    assert {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume} <= maps
    used = set()
    for one in [*spec.get("initContainers", []), *spec["containers"]]:
        rights = one["securityContext"]
        assert rights["capabilities"]["drop"] == ["ALL"] and not rights.get("privileged")
        assert rights["allowPrivilegeEscalation"] is False and rights["readOnlyRootFilesystem"] is True
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        mounts = [mount["mountPath"] for mount in one["volumeMounts"]]
        assert len(mounts) == len(set(mounts))
        used |= {mount["name"] for mount in one["volumeMounts"]}
    assert used == volumes


def test_the_programs_that_are_started_know_their_options() -> None:
    made = render(
        {
            "agent": AGENT,
            "proxy": PROXY,
            "devicePlugin": {"relayed": True, "interposer": {"enabled": True}},
        }
    )
    (agent,), (proxy,) = of_kind(made, "DaemonSet", "-agent"), of_kind(made, "DaemonSet", "-proxy")
    by_name = {one["name"]: one["command"] for one in containers(agent) + containers(proxy)}
    agent_config.parser().parse_args(by_name["agent"][1:])
    options = plugin_config.parser().parse_args(by_name["device-plugin"][1:])
    plugin = plugin_config.load(options)
    assert plugin.relayed and plugin.interposer_dir == "/var/lib/xts/interposer"
    assert by_name["interposer"][1] == "--install-interposer"
    (config,) = of_kind(made, "ConfigMap", "-agent")
    read = agent_config.parse(config["data"]["xts-agent.toml"], "f", {})
    assert (read.endpoint, read.pods, read.pods_only) == (plugin.endpoint, plugin.pods_socket, True)


def test_a_driver_for_dra_is_started_and_may_do_what_it_does() -> None:
    dra = {"enabled": True, "driver": "q.example.com", "claimTemplates": ["shop"]}
    made = render({"agent": AGENT, "devicePlugin": {"dra": dra, "kubeletDir": "/data"}})
    (agent,) = of_kind(made, "DaemonSet")
    plugin = next(one for one in containers(agent) if one["name"] == "device-plugin")
    command = [part.replace("$(NODE_NAME)", "worker-1") for part in plugin["command"]]
    config = plugin_config.load(plugin_config.parser().parse_args(command[1:]))
    assert (config.dra, config.driver, config.kubeconfig) == ("worker-1", "q.example.com", "")
    mounts = {mount["mountPath"] for mount in plugin["volumeMounts"]}
    sockets = (plugin_config.dra_socket(config), plugin_config.registration_socket(config))
    assert {config.cdi_dir, *(str(Path(socket).parent) for socket in sockets)} <= mounts
    # The token is this container's alone.
    token = next(volume["name"] for volume in agent["spec"]["template"]["spec"]["volumes"] if "projected" in volume)
    holders = [one["name"] for one in containers(agent) if token in {mount["name"] for mount in one["volumeMounts"]}]
    assert holders == ["device-plugin"]
    (role,), (binding,) = of_kind(made, "ClusterRole"), of_kind(made, "ClusterRoleBinding")
    assert {name: rule["verbs"] for rule in role["rules"] for name in rule["resources"]} == {
        "resourceclaims": ["get"],
        "resourceslices": ["list", "create", "update", "delete"],
        "nodes": ["get"],
    }
    (account,) = of_kind(made, "ServiceAccount")
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["metadata"]["name"], "ns")
    (policy,) = of_kind(made, "ValidatingAdmissionPolicy")
    (condition,) = policy["spec"]["matchConditions"]
    assert f"system:serviceaccount:ns:{account['metadata']['name']}'" in condition["expression"]
    (kind,) = of_kind(made, "DeviceClass")
    assert kind["spec"]["selectors"] == [{"cel": {"expression": 'device.driver == "q.example.com"'}}]
    (template,) = of_kind(made, "ResourceClaimTemplate")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == kind["metadata"]["name"]


@pytest.mark.parametrize(("release", "version"), [("1.32", "v1beta1"), ("1.33", "v1beta2"), ("1.34", "v1")])
def test_dra_in_each_version_of_its_api(release: str, version: str) -> None:
    dra = {"enabled": True, "apiVersion": f"resource.k8s.io/{version}", "claimTemplates": ["shop"]}
    schemas = ApiSchemas(release)
    made = render({"agent": AGENT, "devicePlugin": {"dra": dra}})
    for one in made:
        schemas.check(one)
    assert {one["kind"] for one in made if one["apiVersion"] == f"resource.k8s.io/{version}"} == {
        "DeviceClass",
        "ResourceClaimTemplate",
    }


def test_a_proxy_takes_over_from_the_pod_before() -> None:
    """No two pods of a node may name the same port of it, and the old one has to run until the new one is ready."""
    values = {"agent": {"enabled": False}, "metrics": METRICS}
    values["proxy"] = PROXY | {"upgradeSecret": "xts-upgrade", "drainTimeoutSeconds": 100}
    made = render(values)
    (proxy,) = of_kind(made, "DaemonSet")
    assert proxy["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    pod = proxy["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "ports" not in container
    assert container["command"][3:] == ["upgrade", "--pod", "--ready-file", "/run/xts-pod/ready"]
    assert container["startupProbe"]["exec"]["command"][-1] == container["command"][-1]
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] > 100 + 30
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["run"]["hostPath"]["path"] == "/run/xts-proxy"
    assert volumes["upgrade-key"]["secret"]["secretName"] == "xts-upgrade"
    for one in (*pod["initContainers"], container):
        assert "/etc/xts-upgrade" in {mount["mountPath"] for mount in one["volumeMounts"]}
    (config,) = of_kind(made, "ConfigMap", "-proxy")
    assert 'upgrade_key = "/etc/xts-upgrade/upgrade.key"' in config["data"]["xts-proxy.toml"]


def test_a_proxy_has_time_to_drain() -> None:
    made = render({"agent": {"enabled": False}, "proxy": PROXY | {"drainTimeoutSeconds": 100}})
    (proxy,) = of_kind(made, "DaemonSet")
    strategy = proxy["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert proxy["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 120
    (config,) = of_kind(made, "ConfigMap")
    assert "drain_timeout_s = 100.0" in config["data"]["xts-proxy.toml"]


def test_a_change_of_the_configuration_replaces_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        (workload,) = of_kind(render(values), "DaemonSet")
        return str(workload["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    changed = {"agent": AGENT | {"settings": {"spares": 2}}}
    assert (
        checksum({"agent": AGENT})
        == checksum({"agent": AGENT | {"tolerations": [{"operator": "Exists"}]}})
        != checksum(changed)
    )


def test_pod_monitors_find_their_pods_and_ports() -> None:
    for name in ("metrics", "metrics with TLS"):
        made = render(VARIANTS[name])
        monitors = of_kind(made, "PodMonitor")
        assert len(monitors) == 2
        for monitor in monitors:
            chosen = monitor["spec"]["selector"]["matchLabels"]
            (workload,) = (
                one
                for one in of_kind(made, "DaemonSet")
                if chosen.items() <= one["spec"]["template"]["metadata"]["labels"].items()
            )
            ports = {port["name"] for one in containers(workload) for port in one.get("ports", [])}
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            assert {endpoint["port"]} == ports
            if name == "metrics with TLS":
                assert endpoint["scheme"] == "https" and endpoint["tlsConfig"]["serverName"] == "xts"
                assert endpoint["authorization"]["credentials"] == {"name": "token", "key": "token"}
    assert not of_kind(render({"agent": AGENT, "metrics": {"enabled": True}}), "PodMonitor")


#: Of a PodMonitor that is right: where, and what it is no longer.
SPOILT = [
    (("podMetricsEndpoints", 0, "interval"), "often"),
    (("podMetricsEndpoints", 0, "scheme"), "ftp"),
    (("podMetricsEndpoints", 0, "ports"), "agent-metrics"),
    (("podMetricsEndpoints", 0, "authorization", "credentials"), {"name": "token"}),
    (("podMetricsEndpoints", 0, "tlsConfig", "ca", "configMap", "key"), None),
    (("selector", "matchLabels", "app"), 1),
    (("podMetricsEndpoints",), {}),
]


@pytest.mark.parametrize(("place", "value"), SPOILT)
def test_a_pod_monitor_that_is_wrong_is_noticed(place: tuple[str | int, ...], value: Any) -> None:
    (monitor, _) = of_kind(render(VARIANTS["metrics with TLS"]), "PodMonitor")
    pod_monitor.check(monitor)
    inner = monitor["spec"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        pod_monitor.check(monitor)


def test_secrets_are_their_owners_alone() -> None:
    made = render(VARIANTS["metrics with TLS"] | {"tokenSecret": "xts-token"})
    for workload in of_kind(made, "DaemonSet"):
        secrets = [one["secret"] for one in workload["spec"]["template"]["spec"]["volumes"] if "secret" in one]
        assert {one["secretName"] for one in secrets} == {"xts-token", "tls", "token"}
        assert {one["defaultMode"] for one in secrets} == {stat.S_IRUSR}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no interface": ({}, "agent.interface must be given"),
    "no interface of the proxy": ({"agent": {"enabled": False}, "proxy": {"enabled": True}}, "proxy.interface must"),
    "unknown": ({"agent": AGENT, "agnet": {}}, "agnet"),
    "unknown within": ({"agent": AGENT | {"interfaces": []}}, "interfaces"),
    "type": ({"agent": AGENT | {"enabled": "yes"}}, "enabled"),
    "address": ({"agent": AGENT | {"peerMac": "02:00"}}, "peerMac"),
    "path": ({"agent": AGENT | {"runDir": "run"}}, "runDir"),
    "path up": ({"agent": AGENT | {"runDir": "/run/../etc"}}, "runDir"),
    "resource": ({"agent": AGENT, "devicePlugin": {"resource": "queue"}}, "resource"),
    "a setting that the agent has not": ({"agent": AGENT | {"settings": {"per_uid_maxx": 3}}}, "per_uid_maxx"),
    "a setting out of range": ({"agent": AGENT | {"settings": {"frame_window": 500}}}, "frame_window"),
    "a setting that the proxy has not": ({"agent": AGENT, "proxy": PROXY | {"settings": {"wokers": 2}}}, "wokers"),
    "a setting of another type": ({"agent": AGENT, "proxy": PROXY | {"settings": {"cpus": "1"}}}, "cpus"),
    "a key of the chart's own": ({"agent": AGENT | {"settings": {"endpoint": "/x"}}}, "endpoint"),
    "a key of two lines": ({"agent": AGENT | {"settings": {"a = 1\nb": 2}}}, "settings"),
    "a table as a setting": ({"agent": AGENT | {"settings": {"a": {"b": 1}}}}, "settings"),
    "port": ({"agent": AGENT, "metrics": {"agentPort": 0}}, "agentPort"),
    "version of DRA": ({"agent": AGENT, "devicePlugin": {"dra": {"apiVersion": "resource.k8s.io/v2"}}}, "apiVersion"),
    "driver of DRA": ({"agent": AGENT, "devicePlugin": {"dra": {"driver": "Q"}}}, "driver"),
    "drain": ({"agent": AGENT, "proxy": PROXY | {"drainTimeoutSeconds": -1}}, "drainTimeoutSeconds"),
    "strategy": ({"agent": AGENT | {"updateStrategy": "Never"}}, "updateStrategy"),
    "none at a time": ({"agent": AGENT | {"maxUnavailable": 0}}, "maxUnavailable"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_values(name: str) -> None:
    values, says = BAD[name]
    done = run_helm("template", "rel", str(CHART), values=values)
    assert done.returncode != 0 and says in done.stderr, done.stderr


def test_the_schema_of_values() -> None:
    """By another reader than helm's, which does not say that a schema is none."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(yaml.safe_load((CHART / "values.yaml").read_text()))
    for values in VARIANTS.values():
        validator.validate(values)
    for name, (values, _) in BAD.items():
        assert validator.is_valid(values) == name.startswith("no interface"), name


@pytest.mark.parametrize("part", chart.DECLARED)
def test_settings_are_the_keys_of_the_reader_and_no_others(part: str) -> None:
    """Each but those that the chart sets itself; and those are in its template."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    listed = set(schema["properties"][part]["properties"]["settings"]["properties"])
    declared = set(chart.DECLARED[part].__struct_fields__)
    assert listed == declared - set(chart.OWN[part]) and set(chart.OWN[part]) < declared


def test_what_is_made_of_the_sources_is_committed() -> None:
    assert (CHART / "values.schema.json").read_text() == chart.schema_text(), "run python -m xts_docs.chart"
    assert (CHART / "README.md").read_text() == chart.readme_text(), "run python -m xts_docs.chart"
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, default, _ in chart.values():
        found: Any = values
        for part in path.split("."):
            found = found[part]
        assert default in ("", "a text") or yaml.safe_load(default) == found, path


def test_the_rendered_chart_of_the_documents() -> None:
    done = subprocess.run(chart.command(str(helm())), cwd=TOP, capture_output=True, text=True, check=True)
    assert (TOP / chart.RENDERED).read_text() == chart.rendered_text(done.stdout), "run python -m xts_docs.chart"


def test_lint_and_version() -> None:
    done = run_helm("lint", "--strict", str(CHART), values={"agent": AGENT})
    assert done.returncode == 0, done.stdout
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert not [path for path in CHART.rglob("*") if path.is_file() and os.access(path, os.X_OK)]
