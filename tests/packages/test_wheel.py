"""The wheel in a root of Debian with Python and nothing else: installed and used by a user who has no root, no compiler
and no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds import debian_root

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(1800)]
MAKE_S = 1200
#: pip is python3-venv's. Nothing of ours needs anything else.
NOTHING_ELSE = "python3,python3-venv"
COMMANDS = ("xts", "xts-agent", "xts-proxy", "xts-lab", "xts-trace", "xts-otlp", "xts-device-plugin", "xts-bluefield")
ENTER = """
mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev"
mount -t tmpfs none "$1/dev/shm" && mount -t tmpfs none "$1/tmp" && chmod 1777 "$1/tmp" "$1/dev/shm"
ip link set lo up
exec chroot "$1" setpriv --reuid=65534 --regid=65534 --clear-groups \\
    env -i PATH=/app/bin:/usr/bin:/bin HOME=/tmp LC_ALL=C.UTF-8 sh -c "cd /tmp; $2"
"""
FETCH = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").status)
"""


def made(*command: str | Path, **more: str) -> None:
    done = subprocess.run(
        command, cwd=debian_root.TOP, env=os.environ | more, capture_output=True, text=True, timeout=MAKE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the wheel, and the wheels it needs, installed in /app."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("not installed: mmdebstrap (tests/packages/run installs what is needed)")
    archive, place = debian_root.PLACE / "python-only.tar", tmp_path_factory.mktemp("root")
    with debian_root.alone():
        if not archive.exists():
            sources = debian_root.PLACE / "python-only.list"
            archives = [debian_root.TOP / "deploy/debian/archives", debian_root.SUITE]
            sources.write_text(subprocess.run(archives, capture_output=True, text=True, check=True).stdout)
            options = ["--mode=root", "--variant=minbase", f"--include={NOTHING_ELSE}", "--skip=output/dev"]
            part = archive.with_name("python-only.part.tar")
            made("mmdebstrap", *options, debian_root.SUITE, part, sources)
            part.rename(archive)
    made("tar", "-x", "-C", place, "-f", archive)
    for folder in ("app", "wheels", "dev/shm"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    wheels = place / "wheels"
    made("deploy/build-wheel", "--output", wheels, WHEEL_TOOLS=str(Path(sys.executable).parent))
    [wheel] = wheels.glob("xts_offload-*.whl")
    made(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", wheels, wheel)
    os.chown(place / "app", 65534, 65534)
    place.chmod(0o755)
    told = user(
        place, f"python3 -m venv /app && pip install --quiet --no-index --find-links /wheels /wheels/{wheel.name}"
    )
    assert told.returncode == 0, told.stdout + told.stderr
    yield place


def user(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    inside = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--net",
        "--kill-child",
        "sh",
        "-c",
        ENTER,
        "-",
        str(root),
        command,
    ]
    return subprocess.run(inside, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_answers(root: Path, command: str) -> None:
    told = user(root, f"{command} --help")
    assert told.returncode == 0 and command in told.stdout, told.stderr


def test_a_program_is_offloaded(root: Path) -> None:
    (root / "app" / "fetch.py").write_text(FETCH)
    told = user(root, "xts dev -v --strict -- python3 /app/fetch.py")
    assert told.returncode == 0 and "200" in told.stdout, told.stderr
    assert "sockets: 3 offloaded" in told.stderr and "; 0 not" in told.stderr, told.stderr


def test_what_is_missing_is_said_with_its_package(root: Path) -> None:
    told = user(root, "xts doctor")
    text = " ".join(told.stdout.split())
    assert "install python3-bpfcc" in text and "of the wheel: libxdp" in text, told.stdout
    assert "Traceback" not in told.stdout + told.stderr
    told = user(root, "xts-trace wakeups")
    assert told.returncode != 0 and "python3-bpfcc" in told.stderr and "Traceback" not in told.stderr, told.stderr


def test_other_files_are_there(root: Path) -> None:
    told = user(root, 'test -s "$(xts files xts-proxy.toml)" && test -s /app/share/man/man1/xts.1 && '
                "test -s /app/lib/cmake/xts/xtsConfig.cmake && test -s /app/lib/pkgconfig/xts.pc")  # fmt: skip
    assert told.returncode == 0, told.stderr
