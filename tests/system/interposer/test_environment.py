"""What the environment says is read once, at load; a privileged program believes none of it; and what it has the
library write costs no sockets and harms no file."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.native_core import compiler
from beds.patience import SLOWER
from beds.preload import PreloadBed, preload_bed
from beds.proxy_process import ProxyProcess, running_proxy
from beds.shm_proxy import library
from xts_lab.lab import Lab

TOP = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).with_name("programs") / "clears_environment.c"
WAYS = ["clearenv", "replaced", "unset", "overwritten"]
DEADLINE_S = 30 * SLOWER
NOBODY = 65534
PYTHON = """
import os, sys, xts_socket
os.environ.clear()
with xts_socket.create_connection((sys.argv[2], int(sys.argv[3]))) as sock:
    print(sock.recv(64).decode(), end="")
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `plain`, for the interposer, and `linked`, which calls libxts."""
    folder = tmp_path_factory.mktemp("programs")
    command = [compiler(), "-Wall", "-Werror", str(SOURCE), "-o"]
    subprocess.run([*command, str(folder / "plain")], check=True)
    where = str(Path(library()).parent)
    includes = [f"-I{TOP / part / 'native'}" for part in ("host_lib", "messages")]
    link = ["-DXTS", *includes, f"-L{where}", f"-Wl,-rpath,{where}", "-l:libxts.so.1"]
    subprocess.run([*command, str(folder / "linked"), *link], check=True)
    return folder


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    with preload_bed(tmp_path_factory.mktemp("bed")) as found:
        yield found


@contextmanager
def greeter(listener: socket.socket) -> Iterator[int]:
    """Says hello to whoever connects; yields its port."""

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted:
                accepted.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


@contextmanager
def local_greeter() -> Iterator[list[str]]:
    """Yields what a client is told about it: address and port."""
    with greeter(socket.create_server(("127.0.0.1", 0))) as port:
        yield ["127.0.0.1", str(port)]


def run(proxy: ProxyProcess, command: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
    """A program that calls the library itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
    environment = clean | {"XTS_ENDPOINT": proxy.endpoint} | settings
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("way", WAYS)
def test_an_unmodified_program_that_does_away_with_its_environment(way: str, bed: PreloadBed, programs: Path) -> None:
    with local_greeter() as where:
        done = bed.run([str(programs / "plain"), way, *where], env={"XTS_LOG": "1"})
    assert (done.stdout, b": offloaded" in done.stderr) == (b"hello", True)


@pytest.mark.parametrize("way", WAYS)
def test_a_program_of_libxts_that_does_away_with_its_environment(way: str, bed: PreloadBed, programs: Path) -> None:
    with local_greeter() as where:
        assert run(bed.proxy, [str(programs / "linked"), way, *where]).stdout == "hello"


def test_python_that_does_away_with_its_environment(bed: PreloadBed) -> None:
    with local_greeter() as where:
        assert run(bed.proxy, [sys.executable, "-c", PYTHON, "clear", *where]).stdout == "hello"


@pytest.mark.parametrize("program", ["interposed", "linked", "python"])
def test_on_the_lab(program: str, lab: Lab, programs: Path) -> None:
    with lab.inside("net"):
        listener = socket.create_server(("198.18.0.2", 0))
    with greeter(listener) as port:
        rest = ["clearenv", "198.18.0.2", str(port)]
        command = {
            "interposed": ["xts", "run", "--", str(programs / "plain"), *rest],
            "linked": [str(programs / "linked"), *rest],
            "python": [sys.executable, "-c", PYTHON, *rest],
        }[program]
        done = lab.run("host", command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == "hello", done.stderr  # the host has no network: it was offloaded


# --- privileged programs ---------------------------------------------------------------------------


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="xts-public-") as name:
        os.chmod(name, 0o755)  # noqa: PTH101
        yield Path(name)


@pytest.mark.root
def test_a_privileged_program_believes_nothing_of_it(public: Path) -> None:
    if os.getuid():
        pytest.skip("makes a set-uid program: needs root")
    if os.statvfs(public).f_flag & os.ST_NOSUID:
        pytest.skip(f"{public} is on a file system without set-uid")
    program, victim = public / "program", public / "victim"
    shutil.copy(library(), public / "libxts.so.1")
    includes = [f"-I{TOP / part / 'native'}" for part in ("host_lib", "messages")]
    link = [f"-L{public}", f"-Wl,-rpath,{public}", "-l:libxts.so.1"]
    subprocess.run([compiler(), "-DXTS", str(SOURCE), "-o", str(program), *includes, *link], check=True)
    victim.write_text("root's own")
    victim.chmod(0o600)
    with running_proxy(public) as proxy, local_greeter() as where:
        environment = {"XTS_ENDPOINT": proxy.endpoint, "XTS_PCAP": str(victim)}

        def outcome() -> tuple[str, str]:
            done = subprocess.run(
                [str(program), "-", *where], env=environment, user=NOBODY, group=NOBODY, extra_groups=[],
                capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            )  # fmt: skip
            return done.stdout, done.stderr

        program.chmod(0o755)
        assert outcome()[0] == "hello", "without privilege it is attached to the proxy that the environment names"
        program.chmod(0o4755)
        stdout, stderr = outcome()
    assert (stdout, stderr.startswith("connect: ")) == ("", True), "the environment named the endpoint"
    assert victim.read_text() == "root's own"
    assert not (public / "victim.1").exists()


# --- files that the library writes --------------------------------------------------------------------


def captured(bed: PreloadBed, path: Path, **limits: int) -> str:
    """Standard error of a program that has exchanged data with XTS_PCAP set, under RLIMIT_FSIZE=size."""
    limit = ""
    if "size" in limits:
        limit = (
            "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limits['size']}, {resource.RLIM_INFINITY}))\n"
        )
    with local_greeter() as where:
        command = [sys.executable, "-c", limit + PYTHON + 2 * "\nxts_socket.socket().close()", "-", *where]
        done = run(bed.proxy, command, XTS_PCAP=str(path))
    assert (done.stdout, done.returncode) == ("hello", 0), done.stderr
    return done.stderr


def test_a_capture_is_a_new_file_of_its_owners(bed: PreloadBed, tmp_path: Path) -> None:
    wanted, victim = tmp_path / "frames", tmp_path / "victim"
    assert captured(bed, wanted) == ""
    first = wanted.read_bytes()
    assert len(first) > 24
    assert stat.S_IMODE(wanted.stat().st_mode) == 0o600
    assert captured(bed, wanted) == ""
    assert wanted.read_bytes() == first
    assert (tmp_path / "frames.1").stat().st_size > 24
    victim.write_text("kept")
    for link in (tmp_path / "link", tmp_path / "link.1"):
        link.symlink_to(victim if link.suffix else tmp_path / "nothing")
    assert captured(bed, tmp_path / "link") == ""
    assert victim.read_text() == "kept"
    assert not (tmp_path / "nothing").exists()
    assert (tmp_path / "link.2").stat().st_size > 24


def test_a_captures_name_says_whose_it_is(bed: PreloadBed, tmp_path: Path) -> None:
    assert captured(bed, tmp_path / "100%%-%p-%e") == ""
    (made,) = tmp_path.iterdir()
    program = re.escape(Path(sys.executable).name)
    assert re.fullmatch(rf"100%-[0-9]+-{program}", made.name), made.name
    assert "frames-%x: Invalid argument; going on without a capture\n" in captured(bed, tmp_path / "frames-%x")
    assert list(tmp_path.iterdir()) == [made]


def test_a_capture_that_cannot_be_written_costs_no_sockets(bed: PreloadBed, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "frames"
    expected = f"libxts: XTS_PCAP={nowhere}: No such file or directory; going on without a capture\n"
    assert captured(bed, nowhere) == expected
    full = tmp_path / "full"
    assert captured(bed, full, size=0) == f"libxts: XTS_PCAP={full}: File too large; going on without a capture\n"
    assert not full.exists()
    filling = tmp_path / "filling"
    assert captured(bed, filling, size=100).count("the capture of this process's frames ends here: ") == 1
    assert filling.stat().st_size <= 100
