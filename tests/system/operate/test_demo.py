"""`deploy/demo` from end to end, small: with a lab, without privilege, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from beds.patience import SLOWER
from xts_lab.demo_job import make_file, sha256_of
from xts_lab.lab import Lab
from xts_lab.places import LAB_PREFIX, remove_abandoned, two_cores
from xts_lab.privilege import afxdp_unavailable, missing_privilege

#: As little as shows that all of it works: a small file, one row.
DEMO = [sys.executable, "-m", "xts_lab.demo", "--size", "4", "--rounds", "1", "--row", "handshake", "--seconds", "0.1"]
JOBS = ("Python got it from nginx over TLSv1.3", "Python served it to curl", "curl, unmodified")
NOBODY = 65534


@pytest.fixture(params=["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)])
def queue(request: pytest.FixtureRequest) -> str:
    """A kind of queue that this machine has; the demo's lab is not up."""
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    if request.param == "afxdp" and (reason := afxdp_unavailable()):
        pytest.skip(reason)
    kind: str = request.param
    return kind


def lab_of(pid: int) -> Lab:
    return Lab(f"{LAB_PREFIX}{pid}", queue="shm")


@pytest.mark.root
@pytest.mark.parametrize(
    "queue",
    [pytest.param("shm", marks=pytest.mark.long), pytest.param("afxdp", marks=pytest.mark.afxdp)],
    indirect=True,
)
def test_whole_job(queue: str, tmp_path: Path) -> None:
    """On every change over AF_XDP in a lab, and over shared memory without one (test_without_privilege)."""
    command = [*DEMO, "--queue", queue, "--cache", str(tmp_path), "--json", str(tmp_path / "figures.json")]
    command += ["--plot", str(tmp_path / "demo.svg")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        said, _ = demo.communicate(timeout=110)
    assert demo.returncode == 0, said
    assert all(f"✓ {job}" in said for job in JOBS), said
    figures = json.loads((tmp_path / "figures.json").read_text())
    ways = {(figure["row"], figure["way"]) for figure in figures["figures"]}
    assert {("handshake", way) for way in ("kernel", queue)} <= ways
    assert all(figure["value"] >= 0 and figure["rate"] > 0 for figure in figures["figures"])
    assert "kernel TCP + OpenSSL" in said and "█" in said
    assert b"<svg" in (tmp_path / "demo.svg").read_bytes()
    assert not lab_of(demo.pid).exists()


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_half_way(queue: str, number: signal.Signals, tmp_path: Path) -> None:
    command = [*DEMO, "--queue", queue, "--cache", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        lab = lab_of(demo.pid)
        deadline = time.monotonic() + 60
        while not (lab.directory / "nginx" / "nginx.pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        records = list(lab.records().values())
        cores = {core for record in records for core in os.sched_getaffinity(record.pid)}
        demo.send_signal(number)
        said, _ = demo.communicate(timeout=60 * SLOWER)
    assert demo.returncode == 130, said
    assert records
    assert cores == {two_cores()[1]}, "what the proxy does is no work of the host's core"
    assert not any(record.alive for record in records)
    assert not lab.exists()


@pytest.mark.root
def test_a_killed_demo_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    with subprocess.Popen([*DEMO, "--queue", "shm", "--cache", str(tmp_path)]) as demo:
        lab = lab_of(demo.pid)
        deadline = time.monotonic() + 60
        while not (lab.directory / "nginx" / "nginx.pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        demo.kill()
        demo.wait()
    keys = list(Path(tempfile.gettempdir()).glob(f"{LAB_PREFIX}{demo.pid}-*/*.key.pem"))
    records = list(lab.records().values())
    server = int((lab.directory / "nginx" / "nginx.pid").read_text())
    remove_abandoned()
    assert keys
    assert not any(key.parent.exists() for key in keys)
    assert records
    assert not any(record.alive for record in records)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{server}/exe").exists() and time.monotonic() < deadline:  # a zombie has no exe
        time.sleep(0.02)
    assert not Path(f"/proc/{server}/exe").exists()
    assert not lab.exists()


def test_without_privilege(tmp_path: Path) -> None:
    options: dict[str, int] = {}
    if os.geteuid() == 0:
        options = {"user": NOBODY, "group": NOBODY}
        os.chown(tmp_path, NOBODY, NOBODY)
        for parent in [tmp_path, *tmp_path.parents]:  # pytest's folders are closed to others
            if parent.owner() == "root" and parent != Path("/") and parent.name.startswith(("pytest-", "popen-")):
                parent.chmod(parent.stat().st_mode | 0o011)
        probe = subprocess.run([sys.executable, "-c", "import xts_lab"], check=False, capture_output=True, **options)  # type: ignore[call-overload]
        if probe.returncode != 0:
            pytest.skip(f"user nobody cannot read this checkout: {Path(sys.executable)}")
    started_in = tmp_path / "closed" / "here"  # where it could not get back to: HAProxy tries that
    started_in.mkdir(parents=True)
    started_in.parent.chmod(0o700)
    command = [*DEMO, "--cache", str(tmp_path)]
    result = subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, text=True, check=False, timeout=110, cwd=started_in, **options
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No privilege" in result.stdout
    assert "XTS shm" in result.stdout


def test_the_file_is_made_once(tmp_path: Path) -> None:
    path, digest = make_file(tmp_path, 1)
    assert path.stat().st_size == 1 << 20
    assert sha256_of(path) == digest
    made = path.stat().st_mtime_ns
    assert make_file(tmp_path, 1) == (path, digest)
    assert path.stat().st_mtime_ns == made
    path.write_bytes(b"cut short")
    assert make_file(tmp_path, 1)[0].stat().st_size == 1 << 20


def test_bad_options(tmp_path: Path) -> None:
    result = subprocess.run([*DEMO, "--size", "0"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 2
    assert "--size" in result.stderr
