"""The device plug-in against a kubelet that is a stand-in, over gRPC on Unix sockets, and an endpoint."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from beds.device_plugin import OfferingEndpoint, running_plugin
from beds.kubelet import Kubelet, wait_for
from hypothesis import given
from hypothesis import strategies as st
from xts_kubernetes import device_plugin_pb2 as messages
from xts_kubernetes import generate
from xts_kubernetes.__main__ import main
from xts_kubernetes.offered import DEVICES_MAX, devices_of, numa_node
from xts_kubernetes.plugin import prefer
from xts_messages.attaching.attach import OfferedQueues, list_queues
from xts_messages.attaching.attachments import Queues

HEALTHY = {f"xts0-{number}": "Healthy" for number in range(3)}


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path) as kubelet:
        yield kubelet


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[OfferingEndpoint]:
    with OfferingEndpoint(tmp_path / "xts" / "endpoint.sock") as endpoint:
        yield endpoint


def test_a_container_gets_an_endpoint(tmp_path: Path, kubelet: Kubelet, endpoint: OfferingEndpoint) -> None:
    with running_plugin(tmp_path, endpoint.path) as (process, _):
        (request,) = kubelet.requests
        assert (request.version, request.resource_name) == ("v1beta1", "xts.io/queue")
        assert request.endpoint == "xts.io-queue.sock" and request.options.get_preferred_allocation_available
        kubelet.await_list(lambda devices: devices == HEALTHY, "the queues of the endpoint")
        answer = kubelet.allocate(["xts0-1"], ["xts0-0", "xts0-2"])
        assert len(answer.container_responses) == 2
        for gets in answer.container_responses:
            assert dict(gets.envs) == {"XTS_ENDPOINT": "/run/xts/endpoint.sock"}
            (mount,) = gets.mounts
            assert (mount.host_path, mount.container_path) == (str(endpoint.path.parent), "/run/xts")
            assert mount.read_only and not gets.devices
        kubelet.call("PreStartContainer", messages.PreStartContainerRequest(), messages.PreStartContainerResponse)
        for wrong in (["xts0-3"], ["../x"], []):
            with pytest.raises(grpc.RpcError) as refused:
                kubelet.allocate(wrong)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "not among the 3 offered" in refused.value.details()
        own = tmp_path / request.endpoint
        assert own.exists()
        process.terminate()
        assert process.wait(20) == 0
        assert not own.exists()


def test_the_interposer_and_relayed_places(tmp_path: Path, kubelet: Kubelet, endpoint: OfferingEndpoint) -> None:
    options = ["--relayed", "--interposer-dir", "/opt/xts/interposer", "--resource", "example.com/q"]
    with running_plugin(tmp_path, endpoint.path, *options):
        assert kubelet.requests[0].resource_name == "example.com/q"
        kubelet.await_list(lambda devices: len(devices) == 5, "three queues and two places at the relay")
        (gets,) = kubelet.allocate(["xts0-4"]).container_responses
        assert gets.envs["LD_PRELOAD"] == "/run/xts-interposer/$LIB/libxts-preload.so"
        assert [mount.host_path for mount in gets.mounts] == [str(endpoint.path.parent), "/opt/xts/interposer"]


def test_health_follows_the_agent(tmp_path: Path, kubelet: Kubelet) -> None:
    endpoint = OfferingEndpoint(tmp_path / "xts" / "endpoint.sock")
    with running_plugin(tmp_path, endpoint.path) as (_, log):
        kubelet.await_list(lambda devices: devices == {}, "nothing without an agent")
        with endpoint:
            kubelet.await_list(lambda devices: devices == HEALTHY, "the agent has come")
        kubelet.await_list(lambda devices: set(devices.values()) == {"Unhealthy"} and len(devices) == 3, "it has gone")
        endpoint.queues = [Queues("xts0", 1, 0, 0), Queues("xts1", 2, 0, 2)]
        with endpoint:
            other = dict.fromkeys(("xts0-0", "xts1-0", "xts1-1"), "Healthy")
            kubelet.await_list(lambda devices: devices == other, "another agent")
        assert f"{endpoint.path}: No such file or directory" in log.read_text()


@pytest.mark.parametrize(
    "answer", [b"", b"\0" * 300, b"XTSC" * 12, b"\xff" * 64], ids=["empty", "zeros", "text", "ones"]
)
def test_an_endpoint_that_is_none(tmp_path: Path, kubelet: Kubelet, answer: bytes) -> None:
    path = tmp_path / "endpoint.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
        hostile.bind(str(path))
        hostile.listen()
        with running_plugin(tmp_path, path) as (process, _):
            for _ in range(3):
                with hostile.accept()[0] as connection, contextlib.suppress(BrokenPipeError):  # it may be busy
                    connection.recv(200)
                    connection.send(answer)
            kubelet.await_list(lambda devices: devices == {}, "nothing of it is offered")
            assert process.poll() is None


def test_the_kubelet_starts_again(tmp_path: Path, kubelet: Kubelet, endpoint: OfferingEndpoint) -> None:
    with running_plugin(tmp_path, endpoint.path) as (process, log):
        for round_number in (2, 3):
            kubelet.end()
            kubelet.start()
            wait_for(lambda number=round_number: len(kubelet.requests) == number, "registered again")
            kubelet.lists.clear()
            endpoint.queues = [Queues("xts0", round_number, 0, 0)]
            kubelet.await_list(lambda devices, number=round_number: len(devices) == number, "and serves")
            assert kubelet.allocate(["xts0-0"]).container_responses
        assert process.poll() is None and log.read_text().count("registered with the kubelet") == 3


def test_the_kubelet_gives_the_plug_in_up(tmp_path: Path, kubelet: Kubelet, endpoint: OfferingEndpoint) -> None:
    """Its socket is the same, and its call of ListAndWatch has ended."""
    with running_plugin(tmp_path, endpoint.path):
        kubelet.await_list(lambda devices: devices == HEALTHY, "it watches")
        kubelet.hang_up()
        assert kubelet.watch_ended.wait(20)
        wait_for(lambda: len(kubelet.requests) == 2, "registered again")


def test_a_kubelet_that_comes_late_and_refuses_first(tmp_path: Path, endpoint: OfferingEndpoint) -> None:
    folder = tmp_path / "kubelet"
    kubelet = Kubelet(folder)
    with running_plugin(folder, endpoint.path, await_ready=False) as (process, log):
        wait_for(lambda: "there is no kubelet yet" in log.read_text(), "it waits")
        assert process.poll() is None
        kubelet.refuses = "no such version"
        with kubelet:
            wait_for(lambda: "does not take xts.io/queue: no such version" in log.read_text(), "it says so")
            kubelet.refuses = ""
            kubelet.await_list(lambda devices: devices == HEALTHY, "and goes on")


def test_a_kubelet_that_is_none(tmp_path: Path, endpoint: OfferingEndpoint) -> None:
    """Something else listens at its path, and says garbage."""
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.bind(str(tmp_path / "kubelet.sock"))
        hostile.listen()
        (tmp_path / "resources").mkdir()
        with running_plugin(tmp_path, endpoint.path, await_ready=False) as (process, log):
            with hostile.accept()[0] as connection:
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" * 10)
                wait_for(lambda: "does not take xts.io/queue" in log.read_text(), "it says so")
            assert process.poll() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--resource", "queue"], "--resource"),
        (["--kubelet-dir", "here"], "--kubelet-dir"),
        (["--endpoint", "/a/../b"], "--endpoint"),
        (["--endpoint", "/" + "a" * 108], "107 bytes"),
        (["--pods-socket", "/run/xts/pods.sock"], "containers get the folder"),
        (["--queues", "5000"], "--queues"),
        (["--period-s", "0"], "--period-s"),
    ],
)
def test_bad_options(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    assert says in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(tmp_path: Path, kubelet: Kubelet, endpoint: OfferingEndpoint) -> None:
    (tmp_path / "xts.io-queue.sock").mkdir()
    with running_plugin(tmp_path, endpoint.path, await_ready=False) as (process, log):
        assert process.wait(20) == 1
        assert "xts.io-queue.sock" in log.read_text() and "Traceback" not in log.read_text()


def test_an_endpoint_says_what_it_has(endpoint: OfferingEndpoint) -> None:
    assert list(list_queues(str(endpoint.path))) == [OfferedQueues("xts0", 3, 2, 0)]
    endpoint.queues = []
    assert not list(list_queues(str(endpoint.path)))


def test_what_an_endpoint_offers() -> None:
    assert [device.id for device in devices_of([], False, 2)] == ["shm-0", "shm-1"]
    assert not devices_of([OfferedQueues("xts0", 0, 4, 0)], False, 9)
    out = OfferedQueues("xts0", 1, 0, 0, problem="xts0 is not there")
    assert [(d.id, d.healthy) for d in devices_of([out, OfferedQueues("xts1", 1, 0, 0)], False, 9)] == [
        ("xts0-0", False),
        ("xts1-0", True),
    ]
    for wrong in (
        [OfferedQueues("xts0", DEVICES_MAX + 1, 0, 0)],
        [OfferedQueues("", 1, 0, 0)],
        [OfferedQueues("a/b", 1, 0, 0)],
        [OfferedQueues("xts0", 1, 0, 0)] * 2,
    ):
        with pytest.raises(ValueError, match="endpoint"):
            devices_of(wrong, False, 0)


def test_the_numa_node_of_a_card(tmp_path: Path) -> None:
    for name, text in (("xts0", "1\n"), ("xts1", "-1\n"), ("xts2", "?")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "numa_node").write_text(text)
    assert [numa_node(name, tmp_path) for name in ("xts0", "xts1", "xts2", "xts3")] == [1, None, None, None]


NAMES = st.lists(st.sampled_from([f"xts{card}-{n}" for card in range(3) for n in range(5)]), unique=True)


@given(available=NAMES, data=st.data())
def test_preferred_devices(available: list[str], data: st.DataObject) -> None:
    needed = data.draw(st.lists(st.sampled_from(available), unique=True)) if available else []
    size = data.draw(st.integers(len(needed), len(available)))
    chosen = prefer(available, needed, size)
    assert len(chosen) == len(set(chosen)) == size and set(needed) <= set(chosen) <= set(available)
    cards = {name.split("-")[0]: 0 for name in available}
    for name in available:
        cards[name.split("-")[0]] += 1
    if not needed and size and max(cards.values()) >= size:
        assert len({name.split("-")[0] for name in chosen}) == 1


def test_devices_that_cannot_be_chosen() -> None:
    for available, needed, size in ((["a-0"], [], 2), (["a-0"], ["b-0"], 1), (["a-0", "a-1"], ["a-0", "a-1"], 1)):
        with pytest.raises(ValueError, match="cannot be chosen"):
            prefer(available, needed, size)


def test_preferred_allocation(tmp_path: Path, kubelet: Kubelet, endpoint: OfferingEndpoint) -> None:
    with running_plugin(tmp_path, endpoint.path):
        request = messages.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=["a-0", "b-0", "b-1"], must_include_deviceIDs=[], allocation_size=2
        )
        answer = kubelet.call("GetPreferredAllocation", request, messages.PreferredAllocationResponse)
        assert list(answer.container_responses[0].deviceIDs) == ["b-0", "b-1"]
        request.container_requests[0].allocation_size = -1
        with pytest.raises(grpc.RpcError) as refused:
            kubelet.call("GetPreferredAllocation", request, messages.PreferredAllocationResponse)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_generated_messages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xts_kubernetes.generate", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {f"{name}.proto" for name in generate.NAMES} == {path.name for path in generate.HERE.glob("*.proto")}
