"""The test-bed itself: its network, its placements, that it is found again, and that it goes without a
trace."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xts_lab import netns, topology
from xts_lab.__main__ import main
from xts_lab.lab import Lab
from xts_lab.placement import KernelPlacement, QueuePlacement
from xts_lab.privilege import LabError, missing_privilege
from xts_lab.running_programs import Record, stop


@pytest.fixture
def bare() -> Iterator[Lab]:
    """The network of a lab without agent and proxy."""
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    lab = Lab(f"b{os.getpid()}", queue="shm", queues=3)
    lab.directory.mkdir(parents=True)
    try:
        topology.raise_network(lab.name, 3)
        yield lab
    finally:
        assert lab.down() == []
        assert not lab.exists()


def exchange(lab: Lab, client: str, server: str, address: str) -> bytes:
    """What a kernel TCP client in one namespace receives from a server in another."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with lab.inside(server):
        listener = socket.create_server((address, 0), family=family)
    with lab.inside(client):
        connection = socket.socket(family)
    with listener, connection:
        connection.settimeout(5)
        connection.connect(listener.getsockname()[:2])
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"across")
        return connection.recv(64)


@pytest.mark.root
@pytest.mark.parametrize("address", ["198.18.0.2", "fd18::2"])
@pytest.mark.parametrize("client", ["dpu", "kern"])
def test_kernel_tcp_reaches_the_network(bare: Lab, client: str, address: str) -> None:
    assert exchange(bare, client, "net", address) == b"across"


@pytest.mark.root
def test_host_has_no_network_of_its_own(bare: Lab) -> None:
    interfaces = topology.describe(bare.name, "host")["interfaces"]
    assert set(interfaces) == {"lo", "xts0"}
    assert interfaces["xts0"] == interfaces["xts0"] | {"addresses": [], "mtu": topology.XTS_MTU, "queues": 3}
    with bare.inside("host"), socket.socket() as connection, pytest.raises(OSError, match="unreachable"):
        connection.connect(("198.18.0.2", 80))


@pytest.mark.root
def test_settings_of_all_namespaces(bare: Lab) -> None:
    for role in topology.ROLES:
        with bare.inside(role):
            assert netns.sysctl("ipv4/tcp_congestion_control") == "cubic"
            assert int(netns.sysctl("core/somaxconn")) >= 10_000
            first, last = (int(port) for port in netns.sysctl("ipv4/ip_local_port_range").split())
            assert last - first > 10_000
    with bare.inside("kern"), socket.socket() as kernel:
        used = kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert used.rstrip(b"\0") == b"cubic"


@pytest.mark.root
def test_kernel_placement_is_verified(bare: Lab) -> None:
    bare.place(QueuePlacement.SOFT, KernelPlacement.R1)
    bare.verify_placement()
    with netns.sysfs(topology.namespace_of(bare.name, "net")) as top:
        netns.write_sysfs(top, "class/net/eth0/queues/rx-0/rps_cpus", 0)
    with pytest.raises(RuntimeError, match="not placement r1"):
        bare.verify_placement()
    bare.place(QueuePlacement.SOFT, KernelPlacement.R0)
    bare.verify_placement()


@pytest.mark.root
def test_entering_a_namespace_is_undone(bare: Lab) -> None:
    home = Path("/proc/thread-self/ns/net").readlink()
    with bare.inside("net"):
        assert Path("/proc/thread-self/ns/net").readlink() != home
    assert Path("/proc/thread-self/ns/net").readlink() == home
    with pytest.raises(FileNotFoundError):
        netns.enter("no-such-namespace")
    assert Path("/proc/thread-self/ns/net").readlink() == home


@pytest.mark.root
def test_programs_are_stopped_with_what_they_started(bare: Lab) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '600']); os.write(int(sys.argv[2]), b'.'); time.sleep(600)"
    )
    record = bare.spawn("net", [sys.executable, "-c", script], name="parent", ready=True)
    assert len(record.members()) == 2
    with pytest.raises(LabError, match="already runs"):
        bare.spawn("net", ["true"], name="parent")
    bare.stop_program("parent")
    assert record.members() == []
    with pytest.raises(LabError, match=r"did not get ready[^$]*no-such-program"):
        bare.spawn("net", ["no-such-program"], name="other", ready=True)


@pytest.mark.root
def test_a_program_that_is_left_in_a_lab_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    lab = Lab(f"l{os.getpid()}", queue="shm", queues=1)
    lab.directory.mkdir(parents=True)
    topology.raise_network(lab.name, 1)
    with lab.popen("net", ["sleep", "600"]) as sleeper:
        try:
            while netns.processes_in(f"{lab.name}-net") != [sleeper.pid]:
                assert sleeper.poll() is None
            assert main(["down", "--name", lab.name]) == 0
            assert sleeper.poll() is None and not lab.exists()
        finally:
            sleeper.kill()
    named, down = capfd.readouterr().err.splitlines()
    assert f"(process {sleeper.pid}) still runs, and {lab.name}-net has no network any more" in named
    assert f"`kill {sleeper.pid}`" in named
    assert down == f"xts-lab: lab {lab.name} is down"


def test_a_process_id_that_passed_on_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        record = Record.of(stranger.pid, ["sleep"])
        stop(Record(record.pid, record.start_ticks - 1, ["another program"]))
        assert stranger.poll() is None
        stop(record)
        assert not record.alive
        assert stranger.wait() in (-signal.SIGTERM, 0)  # 0: stop() has already waited for it


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"queue": "ring"}, "expected afxdp or shm"),
        ({"queues": 0}, "expected 1 to"),
        ({"queue": "shm", "placement": QueuePlacement.THR}, "only an afxdp queue"),
        ({"name": "../etc"}, "expected a letter"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Lab(**settings)  # type: ignore[arg-type]


def test_no_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--name", "nothere"]) == 1
    assert "not up" in capsys.readouterr().out
    assert main(["exec", "--name", "nothere", "host", "--", "true"]) == 1
    assert "xts-lab up" in capsys.readouterr().err
    assert main(["logs", "--name", "nothere"]) == 1


def test_without_privilege_it_says_what_is_missing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("shows what an unprivileged user sees, by giving up root")
    code = (
        "import os, sys; from xts_lab.__main__ import main\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.exit(main(['up']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 1
    assert "CAP_NET_ADMIN" in result.stderr
    assert "deploy/demo" in result.stderr


# --- with agent and proxy ---------------------------------------------------------------------------------


def test_status(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "--name", lab.name]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["queue"] == lab.settings.queue
    assert Path(f"/proc/{status['proxy']['pid']}/ns/net").samefile(f"/run/netns/{lab.name}-dpu")
    if lab.settings.queue == "afxdp":
        assert Path(f"/proc/{status['agent']['pid']}/ns/net").samefile(f"/run/netns/{lab.name}-host")
    assert set(status["namespaces"]) == set(topology.ROLES)
    assert main(["status", "--name", lab.name]) == 0
    assert "is up" in capsys.readouterr().out


def test_exec_sets_the_environment(lab: Lab) -> None:
    command = [sys.executable, "-m", "xts_lab", "exec", "--name", lab.name]
    result = subprocess.run(
        [*command, "host", "--", "sh", "-c", "command -v python; command -v xts; echo $XTS_ENDPOINT; exit 7"],
        capture_output=True,
        text=True,
        check=False,
    )
    directory = Path(sys.executable).parent
    assert result.stdout.split() == [f"{directory}/python", f"{directory}/xts", str(lab.endpoint)]
    assert result.returncode == 7
    result = subprocess.run(
        [*command, "net", "--", "sh", "-c", "echo ${XTS_ENDPOINT-none}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "none\n"


def test_up_again_changes_nothing_but_placement(lab: Lab) -> None:
    before = {name: record.pid for name, record in lab.records().items()}
    kept = {name: getattr(lab.settings, name) for name in ("queue", "queues", "relayed_max")}
    Lab(lab.name, **kept, kern_placement=KernelPlacement.R1).up()
    assert {name: record.pid for name, record in lab.records().items()} == before
    lab.settings = lab.stored_settings() or lab.settings
    lab.verify_placement()
    lab.place(QueuePlacement.SOFT, KernelPlacement.R0)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("lab", ["afxdp"], indirect=True)
def test_threaded_placement_is_verified(lab: Lab) -> None:
    lab.place(QueuePlacement.THR, KernelPlacement.R0)
    lab.verify_placement()
    lab.place(QueuePlacement.SOFT, KernelPlacement.R0)
    lab.verify_placement()


def test_two_labs_and_a_crash_half_way(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A second lab next to the first; its `up` is killed at several moments; `down` leaves nothing each
    time."""
    name = f"{lab.name}b"
    other = Lab(name, queue=lab.settings.queue)
    command = [
        sys.executable,
        "-m",
        "xts_lab",
        "up",
        "--name",
        name,
        "--queue",
        lab.settings.queue,
        "--queues",
        "2",
    ]
    try:
        for line in ("network", "proxy", "first message"):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
                assert up.stdout is not None
                for said in up.stdout:
                    if line in said:
                        up.kill()
                        break
            assert other.exists()
            assert main(["down", "--name", name]) == 0
            assert not other.exists()
        assert main(command[3:]) == 0
        assert main(["status", "--name", name]) == 0
    finally:
        assert main(["down", "--name", name]) == 0
    assert not other.exists()
    capsys.readouterr()
    assert main(["down", "--name", name]) == 0
    said = capsys.readouterr().err
    assert f"there is no lab {name}: nothing was taken down" in said and lab.name in said
    assert main(["cable", "--name", name]) == 1
    assert f"lab {name} is not up" in capsys.readouterr().err
    assert main(["cable", "--name", lab.name]) == 1
    assert f"lab {lab.name} is a cable" in capsys.readouterr().err
    assert main(["status", "--name", lab.name]) == 0


@pytest.mark.root
def test_interrupted_while_a_program_starts(monkeypatch: pytest.MonkeyPatch, ctrl_c: None) -> None:
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    made: list[int] = []
    spawn = os.posix_spawn

    def interrupted(*arguments: Any, **options: Any) -> int:
        made.append(spawn(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return made[0]

    monkeypatch.setattr(os, "posix_spawn", interrupted)
    lab = Lab(f"i{os.getpid()}", queue="shm", queues=1)
    with pytest.raises(KeyboardInterrupt):
        lab.up()
    with pytest.raises(ChildProcessError):  # it has ended, and was waited for
        os.waitpid(made[0], os.WNOHANG)
    assert not lab.exists()


def test_up_mends_a_lab_whose_proxy_died(lab: Lab) -> None:
    name = f"{lab.name}c"
    with Lab(name, queue=lab.settings.queue, queues=2) as broken:
        record = broken.record("proxy")
        assert record is not None
        os.kill(record.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while record.alive and time.monotonic() < deadline:  # closing its queues takes the kernel a while
            time.sleep(0.005)
        assert main(["status", "--name", name]) == 1
        broken.up()
        assert main(["status", "--name", name]) == 0
