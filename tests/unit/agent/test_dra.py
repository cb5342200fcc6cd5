"""The driver for dynamic resource allocation, as a process, between stand-ins: a kubelet over gRPC on Unix sockets, an
API server over HTTP with the API's schemas, and an endpoint."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from beds.device_plugin import OfferingEndpoint, running_plugin
from beds.helm import ApiSchemas
from beds.kubelet import wait_for
from beds.kubelet_dra import DraKubelet
from beds.kubernetes_api import KubernetesApi
from xts_kubernetes.__main__ import main
from xts_kubernetes.claims import ClaimedRequest, claimed
from xts_messages.attaching.attachments import Queues

UID = "8d4b3a80-53e5-4a5b-9a92-5f2c9a1e7d10"
OTHER = "11111111-2222-3333-4444-555555555555"
DRIVER, NODE = "queue.xts.io", "worker-1"
CLAIM = ("shop", "web", UID)
PARAMETERS = {"apiVersion": "xts.io/v1", "kind": "QueueParameters"}


def result(device: Any, request: str = "queue", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": device} | more


def said(source: str = "FromClaim", requests: tuple[str, ...] = (), **parameters: Any) -> dict[str, Any]:
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": DRIVER, "parameters": PARAMETERS | parameters},
    }


class Bed:
    """What a driver has around it."""

    def __init__(self, folder: Path, kubelet: DraKubelet, api: KubernetesApi, endpoint: OfferingEndpoint) -> None:
        self.folder, self.kubelet, self.api, self.endpoint = folder, kubelet, api, endpoint
        self.cdi = folder / "cdi"
        self.options = [
            *("--dra", NODE, "--kubelet-plugins", str(kubelet.plugins)),
            *("--kubelet-registry", str(kubelet.registry), "--cdi-dir", str(self.cdi)),
            *("--kubeconfig", str(api.kubeconfig(folder / "kubeconfig"))),
        ]

    def running(self, *options: str) -> Any:
        """The driver, which does not say that it is ready before it was registered."""
        return running_plugin(self.folder, self.endpoint.path, *self.options, *options, await_ready=False)

    def await_devices(self, *wanted: str) -> None:
        wait_for(lambda: self.api.devices() == set(wanted), f"slices with {wanted}")

    def file(self, uid: str = UID) -> Path:
        return self.cdi / f"{DRIVER}-claim-{uid}.json"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Its name is short: the address of a Unix socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        yield Path(made)


@pytest.fixture
def bed(folder: Path) -> Iterator[Bed]:
    endpoint = OfferingEndpoint(folder / "xts" / "endpoint.sock")
    with DraKubelet(folder) as kubelet, KubernetesApi() as api, endpoint:
        yield Bed(folder, kubelet, api, endpoint)


def test_a_claim_from_registration_to_its_end(bed: Bed) -> None:
    bed.api.allocate(
        *CLAIM,
        [result("xts0-0"), result("xts0-2"), result("xts0-1", "more/two"), result("x", driver="gpu.example.com")],
        [],
    )
    with bed.running() as (process, log):
        info = bed.kubelet.register()
        assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
        bed.await_devices("xts0-0", "xts0-1", "xts0-2")
        for _ in range(2):  # the kubelet may ask again
            answer = bed.kubelet.prepare(CLAIM)[UID]
            assert not answer.error
            assert [(one.device_name, list(one.request_names)) for one in answer.devices] == [
                ("xts0-0", ["queue"]),
                ("xts0-2", ["queue"]),
                ("xts0-1", ["more/two"]),
            ]
            assert {one.pool_name for one in answer.devices} == {NODE}
            names = [list(one.cdi_device_ids) for one in answer.devices]
            kind = f"{DRIVER}/queue=claim-{UID}"
            assert names == [[f"{kind}-queue"], [], [f"{kind}-more_two"]]
        made = json.loads(bed.file().read_text())
        assert made["kind"] == f"{DRIVER}/queue"
        assert [one["name"] for one in made["devices"]] == [f"claim-{UID}-queue", f"claim-{UID}-more_two"]
        edits = made["devices"][0]["containerEdits"]
        assert edits["env"] == ["XTS_ENDPOINT=/run/xts/endpoint.sock"]
        (mount,) = edits["mounts"]
        assert (mount["hostPath"], mount["containerPath"]) == (str(bed.endpoint.path.parent), "/run/xts")
        assert "ro" in mount["options"]
        for _ in range(2):
            assert not bed.kubelet.unprepare(CLAIM)[UID].error
            assert not list(bed.cdi.iterdir())
        process.terminate()
        assert process.wait(20) == 0
        assert not list(bed.kubelet.registry.iterdir()) and "Traceback" not in log.read_text()
    assert len(bed.api.slices) == 1  # the next one of an upgrade finds them


def test_a_kubelet_that_knows_the_older_version_only(bed: Bed) -> None:
    bed.kubelet.service = "v1beta1.DRAPlugin"
    bed.api.allocate(*CLAIM, [result("xts0-0")], [])
    with bed.running():
        bed.kubelet.register()
        assert [one.device_name for one in bed.kubelet.prepare(CLAIM)[UID].devices] == ["xts0-0"]


@pytest.mark.parametrize(
    ("config", "interposed"),
    [
        ([], None),
        ([said("FromClaim", interposer=False)], False),
        ([said("FromClaim", interposer=True), said("FromClass", interposer=False)], True),
        ([said("FromClass", interposer=False), said("FromClaim")], False),
        ([said(requests=("other",), interposer=False)], None),
        ([said(requests=("queue",), interposer=False)], False),
        ([{"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {"x": 1}}}], None),
    ],
)
def test_the_interposer_by_parameters(config: list[Any], interposed: bool | None) -> None:
    claim = {
        "metadata": {"uid": UID},
        "status": {"allocation": {"devices": {"results": [result("xts0-0")], "config": config}}},
    }
    assert claimed(claim, UID, DRIVER, NODE) == (ClaimedRequest("queue", ("xts0-0",), interposed),)


@pytest.mark.parametrize(("config", "interposed"), [([], True), ([said("FromClaim", interposer=False)], False)])
def test_a_container_with_the_interposer(bed: Bed, config: list[Any], interposed: bool) -> None:
    bed.api.allocate(*CLAIM, [result("xts0-0")], config)
    with bed.running("--interposer-dir", "/opt/xts/interposer"):
        bed.kubelet.register()
        assert not bed.kubelet.prepare(CLAIM)[UID].error
    (device,) = json.loads(bed.file().read_text())["devices"]
    preload = "LD_PRELOAD=/run/xts-interposer/$LIB/libxts-preload.so"
    assert (preload in device["containerEdits"]["env"]) is interposed
    assert len(device["containerEdits"]["mounts"]) == 1 + interposed


REFUSED: dict[str, tuple[list[Any], list[Any], str]] = {
    "nothing": ([], [], "nothing of queue.xts.io is allocated"),
    "of another driver": ([result("x", driver="gpu.example.com")], [], "nothing of queue.xts.io is allocated"),
    "of another node": ([result("xts0-0", pool="worker-2")], [], "it has a device of worker-2"),
    "not offered": ([result("xts0-7")], [], "xts0-7: not among the 3 offered"),
    "for an administrator": ([result("xts0-0", adminAccess=True)], [], "adminAccess"),
    "no name of a request": ([result("xts0-0", "../../x")], [], "no name of one"),
    "not the type": ([result(7)], [], "cannot be read"),
    "unknown parameters": ([result("xts0-0")], [said(interposed=True)], "unknown field `interposed`"),
    "parameters of another type": ([result("xts0-0")], [said(interposer="yes")], "Expected `bool"),
    "parameters of another version": ([result("xts0-0")], [said(apiVersion="v9")], "expected xts.io/v1"),
    "an interposer that is not there": ([result("xts0-0")], [said(interposer=True)], "this node has no interposer"),
}


def test_claims_that_cannot_be_prepared(bed: Bed) -> None:
    """Each is refused by itself: the others of the same request are prepared."""
    bed.api.allocate("shop", "good", OTHER, [result("xts0-0")], [])
    with bed.running() as (process, _):
        bed.kubelet.register()
        for name, (results, config, says) in REFUSED.items():
            bed.api.allocate(*CLAIM, results, config)
            answers = bed.kubelet.prepare(CLAIM, ("shop", "good", OTHER))
            assert says in answers[UID].error, name
            assert not answers[UID].devices and not bed.file().exists()
            assert not answers[OTHER].error and bed.file(OTHER).exists()
        assert "another one" in bed.kubelet.prepare(("shop", "good", UID))[UID].error
        assert "404" in str(bed.kubelet.prepare(("shop", "none", UID))) or "not found" in str(
            bed.kubelet.prepare(("shop", "none", UID))
        )
        bed.api.claims["shop", "web"] = {"metadata": {"uid": UID}, "status": None}
        assert "nothing of" in bed.kubelet.prepare(CLAIM)[UID].error
        assert process.poll() is None


def test_a_kubelet_that_sends_what_is_no_claim(bed: Bed) -> None:
    """Its identifier becomes a part of a path."""
    outside = bed.folder / "outside.json"
    outside.write_text("kept")
    with bed.running() as (process, _):
        bed.kubelet.register()
        for wrong in (f"../{'x' * 8}", f"/../../{outside.stem}", "", "\0", UID.upper(), "a" * 100_000):
            assert "no identifier" in bed.kubelet.prepare(("shop", "web", wrong))[wrong].error
            assert "no identifier" in bed.kubelet.unprepare(("shop", "web", wrong))[wrong].error
        for namespace, name in (("..", "web"), ("shop", "web/../../x"), ("shop", "web?x=1"), ("", "")):
            assert "no name" in bed.kubelet.prepare((namespace, name, UID))[UID].error
        with pytest.raises(grpc.RpcError) as refused:
            bed.kubelet.prepare(("shop", "a" * (2 << 20), UID))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        bed.api.allocate(*CLAIM, [result("xts0-0")], [])
        assert len(bed.kubelet.prepare(CLAIM, CLAIM, CLAIM)[UID].devices) == 1
        assert process.poll() is None and outside.read_text() == "kept"


def test_the_kubelet_starts_again(bed: Bed) -> None:
    bed.api.allocate(*CLAIM, [result("xts0-0")], [])
    with bed.running() as (process, log):
        for number in (1, 2, 3):
            bed.kubelet.register()
            assert bed.kubelet.prepare(CLAIM)[UID].devices
            wait_for(lambda wanted=number: log.read_text().count("registered with the kubelet") == wanted, "it knows")
            bed.await_devices("xts0-0", "xts0-1", "xts0-2")
            bed.kubelet.forget()
            bed.api.slices.clear()  # as it deletes what a driver published that was away
        assert process.poll() is None


def test_its_sockets_are_removed(bed: Bed) -> None:
    with bed.running() as (process, _):
        bed.kubelet.register()
        for removed in (bed.kubelet.registry, bed.kubelet.plugins):
            bed.kubelet.forget()
            for path in removed.glob("**/*.sock"):
                path.unlink()
            wait_for(lambda: list(bed.kubelet.plugins.glob("*/*.sock")), "it serves")
            bed.kubelet.register()
        shutil.rmtree(bed.kubelet.registry)
        wait_for(lambda: "there is no kubelet yet" in (bed.folder / "plugin.log").read_text(), "it waits")
        bed.kubelet.registry.mkdir()
        bed.kubelet.register()
        assert process.poll() is None


def test_a_kubelet_that_refuses(bed: Bed) -> None:
    with bed.running() as (process, log):
        bed.kubelet.register(error="no such\nversion")
        wait_for(lambda: "does not take queue.xts.io: no such?version" in log.read_text(), "it says so")
        bed.kubelet.register()
        assert process.poll() is None


def test_the_driver_starts_again(bed: Bed) -> None:
    """What was prepared stays, and can be taken back by the next one."""
    bed.api.allocate(*CLAIM, [result("xts0-0")], [])
    with bed.running() as (process, _):
        bed.kubelet.register()
        assert bed.kubelet.prepare(CLAIM)[UID].devices
        process.kill()
        process.wait()
    bed.kubelet.forget()
    assert bed.file().exists()
    (left,) = bed.kubelet.registry.glob("*.sock")  # the next one makes its own in place of it
    assert left.is_socket()
    before = list(bed.api.generations)
    with bed.running() as (_, log):
        wait_for(lambda: log.read_text().count("3 devices are offered") == 2, "it has started")
        wait_for(lambda: _served(bed), "it serves")
        bed.kubelet.register()
        assert not bed.kubelet.unprepare(CLAIM)[UID].error and not bed.file().exists()
        assert bed.api.generations == before  # the slices were right already


def _served(bed: Bed) -> bool:
    """Whether somebody listens at the driver's registration socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return any(probe.connect_ex(str(path)) == 0 for path in bed.kubelet.registry.glob("*.sock"))


def test_slices_follow_the_endpoint(bed: Bed) -> None:
    bed.endpoint.queues = [Queues("xts0", 200, 2, 0), Queues("Port.0", 1, 0, 0)]
    with bed.running("--relayed"):
        bed.kubelet.register()
        odd = b"Port.0".ljust(16, b".").hex()
        wait_for(lambda: len(bed.api.devices()) == 203, "three kinds of places in two slices")
        assert f"{odd}-0" in bed.api.devices() and len(bed.api.slices) == 2
        bed.endpoint.queues = [Queues("xts0", 1, 0, 0)]
        bed.await_devices("xts0-0")
        wait_for(lambda: len(bed.api.slices) == 1, "the second one is deleted")
        assert bed.api.generations == sorted(bed.api.generations)
        bed.endpoint.__exit__()
        wait_for(lambda: not bed.api.slices, "nothing is offered without an agent")
        bed.endpoint.__enter__()
        bed.await_devices("xts0-0")


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_slices_are_what_the_api_takes(folder: Path, version: str) -> None:
    """In each of its versions, by the schema of the first release of Kubernetes that has it."""
    schemas = ApiSchemas({"v1": "1.34", "v1beta2": "1.33", "v1beta1": "1.32"}[version])
    endpoint = OfferingEndpoint(folder / "xts" / "endpoint.sock")
    with DraKubelet(folder) as kubelet, KubernetesApi(version, schemas.check) as api, endpoint:
        bed = Bed(folder, kubelet, api, endpoint)
        api.allocate(*CLAIM, [result("xts0-1")], [])
        with bed.running():
            kubelet.register()
            bed.await_devices("xts0-0", "xts0-1", "xts0-2")
            assert kubelet.prepare(CLAIM)[UID].devices
        assert not api.refused
        (made,) = api.slices.values()
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", NODE, api.node_uid)
        with pytest.raises(Exception, match=r"[Aa]dditional properties"):
            schemas.check(made | {"strange": 1})


def test_an_api_server_that_goes_and_comes(bed: Bed) -> None:
    bed.api.allocate(*CLAIM, [result("xts0-0")], [])
    bed.api.__exit__()
    with bed.running() as (process, log):
        bed.kubelet.register()
        assert "cannot be reached" in bed.kubelet.prepare(CLAIM)[UID].error
        wait_for(lambda: "cannot be reached" in log.read_text(), "it says so")
        bed.api.__enter__()
        bed.await_devices("xts0-0", "xts0-1", "xts0-2")
        assert bed.kubelet.prepare(CLAIM)[UID].devices
        assert process.poll() is None


HOSTILE = {
    "no JSON": (200, "application/json", b"{"),
    "another type": (200, "application/json", b"[1]"),
    "a list of what is none": (200, "application/json", b'{"kind":"List","metadata":{},"items":[1,{"metadata":7}]}'),
    "an object of nothing": (200, "application/json", b"{}"),
    "a page": (200, "text/html", b"<html>"),
    "a page that refuses": (403, "text/html", b"<html>"),
    "a refusal that is none": (500, "application/json", b"7"),
    "a refusal": (403, "application/json", b'{"kind":"Status","code":403,"message":"forbidden: not yours"}'),
    "bytes": (200, "application/json", bytes(range(256))),
}


def test_an_api_server_that_answers_anything(bed: Bed) -> None:
    bed.api.allocate(*CLAIM, [result("xts0-0")], [])
    with bed.running() as (process, log):
        bed.kubelet.register()
        bed.await_devices("xts0-0", "xts0-1", "xts0-2")
        for name, answer in HOSTILE.items():
            bed.api.answers = answer
            prepared = bed.kubelet.prepare(CLAIM)[UID]
            assert prepared.error and not prepared.devices, name
            bed.kubelet.register()  # which has it look at its slices
        bed.api.answers = None
        assert bed.kubelet.prepare(CLAIM)[UID].devices
        assert process.poll() is None and "Traceback" not in log.read_text()


def test_many_claims_at_once(bed: Bed) -> None:
    """Several calls of the kubelet, each with many claims of which some are the same."""
    bed.endpoint.queues = [Queues("xts0", 100, 0, 0)]
    claims = [("shop", f"web-{number}", f"{number:08x}-0000-4000-8000-000000000000") for number in range(100)]
    for number, claim in enumerate(claims):
        bed.api.allocate(*claim, [result(f"xts0-{number}")], [])
    with bed.running():
        bed.kubelet.register()
        wait_for(lambda: len(bed.api.devices()) == 100, "all are offered")
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda at=at: answers.append(bed.kubelet.prepare(*claims[at : at + 50])))
            for at in (0, 25, 50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 3 and all(len(one) == 50 for one in answers)
        assert not any(answer.error for one in answers for answer in one.values())
        assert len(list(bed.cdi.iterdir())) == 100
        bed.kubelet.unprepare(*claims)
        assert not list(bed.cdi.iterdir())


def test_a_folder_for_cdi_that_cannot_be(bed: Bed) -> None:
    bed.cdi.write_text("a file")
    bed.api.allocate(*CLAIM, [result("xts0-0")], [])
    with bed.running() as (process, _):
        bed.kubelet.register()
        assert "File exists" in bed.kubelet.prepare(CLAIM)[UID].error
        assert "Not a directory" in bed.kubelet.unprepare(CLAIM)[UID].error
        assert process.poll() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--dra", "Node_1"], "--dra"),
        (["--dra", "n", "--driver", "Q"], "--driver"),
        (["--dra", "n", "--driver", "1.io"], "--driver"),
        (["--dra", "n", "--cdi-dir", "here"], "--cdi-dir"),
        (["--dra", "n", "--kubelet-plugins", "/" + "a" * 90], "--kubelet-plugins"),
    ],
)
def test_bad_options(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "[", "a: 1", "7"])
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    assert main(["--dra", "n", "--kubeconfig", str(path), "--pods-socket", ""]) == 1
    said = capsys.readouterr().err
    assert f"{path} does not say how to reach the API server" in said and "Traceback" not in said
