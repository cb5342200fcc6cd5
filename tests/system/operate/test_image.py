"""The container images of deploy/build-image and deploy/Containerfile under podman: agent and proxy serve a container
that has no network. What each may is what the chart gives it.

Containers are few, for each takes podman up to half a minute where it copies the image.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oci_archive
import pytest
from beds.helm import render
from beds.lab import raise_or_skip
from beds.operated_proxy import wait
from xts_lab import netns, topology
from xts_lab.lab import Lab
from xts_lab.loopback import ALLOW_LOOPBACK

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(900)]  # mostly to build the image

TOP = Path(__file__).parents[3]
IMAGE = "localhost/xts-offload:test"
SUITE = "bookworm"
MOST_BYTES = 250 << 20
PROGRAMS = ("xts", "xts-agent", "xts-proxy", "xts-device-plugin")
VERSIONS = "; ".join(f"{program} --version" for program in PROGRAMS)
PEER = """
import socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(self.request.recv(100) + b" from a peer")
socketserver.TCPServer(("", 7777), Handler).serve_forever()
"""
FETCH = """
import sys, xts_socket, os
assert os.listdir("/sys/class/net") == ["lo"]
with xts_socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    s.sendall(b"hello")
    print(s.recv(100).decode())
"""


class Podman:
    """With a store of its own, so that nothing is left of it."""

    def __init__(self, folder: Path) -> None:
        self.command = ["podman", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self.command += ["--cgroup-manager=cgroupfs"]
        if shutil.which("runc"):
            self.command.append("--runtime=runc")
        #: Of which the image is made.
        self.commit = run("git", "rev-parse", "HEAD").strip()

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False, timeout=600)
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr[-2000:]}"
        return done

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[None]:
        """A container that runs meanwhile."""
        self("run", "--detach", "--name", name, *LIMITS, *arguments)
        try:
            yield
        finally:
            self("rm", "--force", "--time", "0", name)

    def inside(self, name: str, *command: str) -> str:
        """What a command writes in a container that runs."""
        return self("exec", name, *command).stdout

    def succeeds(self, name: str, *command: str) -> bool:
        """Whether a command does in a container that runs."""
        return self("exec", name, *command, check=False).returncode == 0

    def log(self, name: str) -> str:
        return self("logs", name).stderr


def _limits() -> list[str]:
    """podman asks for more than there is where root may not raise limits."""
    wanted = {"nofile": (resource.RLIMIT_NOFILE, 4096), "nproc": (resource.RLIMIT_NPROC, 1024)}
    most = {name: (resource.getrlimit(kind)[1], enough) for name, (kind, enough) in wanted.items()}
    return [f"--ulimit={name}={enough if hard < 0 else min(hard, enough)}" for name, (hard, enough) in most.items()]


LIMITS = _limits()


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """With the image."""
    if os.geteuid():
        pytest.skip("a root is made as root")
    if not shutil.which("podman"):
        pytest.skip("no podman")
    folder = tmp_path_factory.mktemp("image")
    podman = Podman(folder)
    archive = folder / "image.tar"
    run("deploy/build-image", "--output", str(archive), "--tag", IMAGE, "--commit", podman.commit)
    podman("load", "--input", str(archive))
    archive.unlink()
    try:
        yield podman
    finally:
        podman("rmi", "--all", "--force", check=False)


def run(*command: str) -> str:
    """What a command of this machine writes."""
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@dataclass
class Application:
    """A container of the image without network, which sees the folder of the endpoint only."""

    podman: Podman
    folder: Path

    def fetch(self, address: str, port: int) -> str:
        return self.podman.inside("application", "python3", "-c", FETCH, address, str(port))


@pytest.fixture(scope="module")
def application(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    folder = tmp_path_factory.mktemp("application")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    started = podman(
        *("run", "--detach", "--network=none", "--name=application", f"--volume={folder}:/run/xts", *LIMITS),
        *(IMAGE, "sleep", "infinity"),
        check=False,
    )
    try:
        if started.returncode:
            pytest.skip(f"podman cannot run a container here: {started.stderr[-300:]}")
        yield Application(podman, folder)
    finally:
        podman("rm", "--force", "--time", "0", "application", check=False)


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """The port of a server of this machine."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(self.request.recv(100) + b" from outside")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def rights(part: str, container: str) -> list[str]:
    """What the chart gives a container, as podman's options."""
    values: dict[str, Any] = {
        "agent": {"interface": "a", "peerMac": "02:00:00:00:00:01"},
        "proxy": {"enabled": True, "interface": "a", "peerMac": "02:00:00:00:00:01"},
    }
    workload = next(
        one for one in render(values) if one["kind"] == "DaemonSet" and one["metadata"]["name"].endswith(part)
    )
    spec = workload["spec"]["template"]["spec"]
    context = next(one for one in spec["containers"] if one["name"] == container)["securityContext"]
    options = [
        f"--user={context['runAsUser']}",
        "--read-only",
        "--read-only-tmpfs=false",
        "--security-opt=no-new-privileges",
        "--cap-drop=all",
    ]
    options += [f"--cap-add={name}" for name in context["capabilities"].get("add", [])]
    return [*options, *(["--pid=host"] if spec.get("hostPID") else [])]


def test_who_it_is_and_what_it_has(podman: Podman, application: Application) -> None:
    (image,) = json.loads(podman("image", "inspect", IMAGE).stdout)
    labels = image["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "xts-offload"
    assert labels["org.opencontainers.image.revision"] == podman.commit
    assert image["Size"] < MOST_BYTES
    assert podman.inside("application", "id", "-un").strip() == "xts"
    check_programs(podman, "application")


def check_programs(podman: Podman, name: str) -> None:
    imports = "import xts_kubernetes.kubelet, xts_kubernetes.pod_directory"  # the messages, with this protobuf
    said = podman.inside(name, "sh", "-ec", f"{VERSIONS}; python3 -c '{imports}'; ls /usr/bin /opt/xts/bin")
    for program in PROGRAMS:
        assert f"{program} 0." in said, program
    assert not {"gcc", "clang", "pip", "pip3", "cmake"} & set(said.split())
    contents = json.loads(podman.inside(name, "cat", "/opt/xts/share/sbom.cdx.json"))
    named = {one["name"].lower() for one in contents["components"]}
    assert contents["metadata"]["component"]["name"] == "xts-offload" and {"cffi", "grpcio", "msgspec"} <= named


def test_a_proxy_serves_a_container_without_network(
    podman: Podman, application: Application, echo: int, tmp_path: Path
) -> None:
    """It is process 1 of its container, and has no number for processes of the other."""
    tmp_path.chmod(0o755)
    config = tmp_path / "xts-proxy.toml"
    drain = "drain_timeout_s = 0.5\n"
    config.write_text(f'[proxy]\nqueue = "shm"\n{drain}[policy]\ndefault = "allow"\n' + ALLOW_LOOPBACK)
    volumes = [f"--volume={application.folder}:/run/xts", f"--volume={config}:/etc/xts.toml:ro"]
    command = [IMAGE, "xts-proxy", "--config", "/etc/xts.toml"]
    with podman.running("proxy", "--network=host", *rights("proxy", "proxy"), *volumes, *command):
        wait(lambda: "ready: " in podman.log("proxy"), "proxy that serves", 30)
        assert application.fetch("127.0.0.1", echo) == "hello from outside\n"
        podman("stop", "--time", "30", "proxy")
        (ended,) = json.loads(podman("container", "inspect", "proxy").stdout)
        assert ended["State"]["ExitCode"] == 0, podman.log("proxy")
        assert podman.log("proxy").rstrip().endswith("stopped")


@dataclass(frozen=True, slots=True)
class FromChart:
    """How the chart starts a part: its files, its command and its probes."""

    volume: str
    command: list[str]
    probes: list[list[str]]


def from_chart(part: str, values: dict[str, Any], folder: Path) -> FromChart:
    """With the part's files of the chart in `folder`."""
    made = [one for one in render(values) if one["metadata"]["name"].endswith(part)]
    files = next(one for one in made if one["kind"] == "ConfigMap")["data"]
    (container,) = next(one for one in made if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]["containers"]
    place = folder / part
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    probes = [container[name]["exec"]["command"] for name in ("startupProbe", "readinessProbe")]
    return FromChart(f"--volume={place}:/etc/xts:ro", container["command"], probes)


def values_of(lab: Lab) -> dict[str, Any]:
    """Of the chart, for both ends of a lab's wire."""
    macs = {end: topology.mac_address(lab.name, end) for end in (topology.HOST_XTS, topology.DPU_XTS)}
    agent = {"interface": topology.HOST_XTS.interface, "peerMac": macs[topology.DPU_XTS], "podsOnly": False}
    proxy = {"interface": topology.DPU_XTS.interface, "peerMac": macs[topology.HOST_XTS], "drainTimeoutSeconds": 1}
    return {"agent": agent, "devicePlugin": {"enabled": False}, "proxy": proxy | {"enabled": True}}


@pytest.mark.afxdp
def test_both_parts_of_the_chart_serve_a_container_without_network(
    podman: Podman, application: Application, tmp_path: Path
) -> None:
    """Agent and proxy over AF_XDP, each where its end of a veth is, with what the chart gives them: rights, files and
    probes, and no more."""
    tmp_path.chmod(0o755)
    lab = raise_or_skip("afxdp", "image-both", tokens=False)
    try:
        for program in ("agent", "proxy"):
            lab.stop_program(program)
        values = values_of(lab)
        (application.folder / "endpoint.sock").unlink(missing_ok=True)
        with ExitStack() as stack:
            for part, namespace, run in (("proxy", "dpu", "--tmpfs"), ("agent", "host", "--volume")):
                one = from_chart(part, values, tmp_path)
                place = "/run/xts" if run == "--tmpfs" else f"{application.folder}:/run/xts"
                network = netns.path_of(topology.namespace_of(lab.name, namespace))
                options = [f"--network=ns:{network}", *rights(part, part), f"{run}={place}", one.volume]
                stack.enter_context(podman.running(part, *options, IMAGE, *one.command))
                for probe in one.probes:
                    wait(lambda part=part, probe=probe: podman.succeeds(part, *probe), f"answer to {probe}", 30)
            stack.enter_context(peer_of(lab))
            assert application.fetch(str(topology.NET.addresses[0].ip), 7777) == "hello from a peer\n"
            podman("stop", "--time", "30", "proxy")
            (ended,) = json.loads(podman("container", "inspect", "proxy").stdout)
            assert ended["State"]["ExitCode"] == 0, podman.log("proxy")
    finally:
        assert not lab.down()


@contextmanager
def peer_of(lab: Lab) -> Iterator[None]:
    """A server on the network meanwhile."""
    with lab.popen("net", ["python", "-c", PEER]) as peer:
        try:
            yield
        finally:
            peer.terminate()


def test_the_containerfile_builds(podman: Podman, tmp_path: Path) -> None:
    """On a base that is made here, from wheels that deploy/build-image has fetched."""
    base = tmp_path / "base.tar"
    (tmp_path / "sources.list").write_text(run("deploy/debian/archives", SUITE))
    run("mmdebstrap", "--mode=root", "--variant=minbase", SUITE, str(base), str(tmp_path / "sources.list"))
    archive = tmp_path / "base-image.tar"
    oci_archive.make(base, archive, "localhost/base:test", "2026-01-01T00:00:00+00:00", {})
    podman("load", "--input", str(archive))
    source = tmp_path / "source"
    source.mkdir()
    run("sh", "-c", f"git archive {podman.commit} | tar -x -C {source}")
    podman(
        *("build", "--file", str(source / "deploy/Containerfile"), "--tag", "localhost/built:test", "--layers=false"),
        "--network=host",
        *("--runtime=runc",) * bool(shutil.which("runc")),
        *("--build-arg", "BASE=localhost/base:test", f"--volume={TOP}/build/image/wheels:/wheels:ro"),
        *("--build-arg", "PIP_OPTIONS=--no-index --find-links /wheels"),
        *LIMITS,
        str(source),
    )
    (image,) = json.loads(podman("image", "inspect", "localhost/built:test").stdout)
    assert image["Config"]["User"] == "xts" and image["Config"]["Cmd"] == ["xts", "--help"]
    with podman.running("built", "--network=none", "localhost/built:test", "sleep", "infinity"):
        check_programs(podman, "built")
