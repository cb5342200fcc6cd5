"""A clean root of Debian for tests of the packages: what a machine has that was just installed, and no more.

The packages under test are not in it. What they depend on lies in it as archives that apt has not installed yet, so
`apt-get install` in a machine without network does what it does elsewhere, and finds a dependency that is not named.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.patience import SLOWER

SUITE = "bookworm"
#: systemd, its bus, and the tools that tests use in it: no library of ours is among what these need.
MACHINE = ("systemd-sysv", "dbus", "curl", "iproute2", "procps")
#: Programs that tests install in the machine, as archives, too.
OFFERED = ("nginx-light",)
TOP = Path(__file__).parents[2]
PLACE = TOP / "build/packages"
BUILD_S = 600 * SLOWER


@contextmanager
def alone() -> Iterator[None]:
    """No other process of this checkout is in such a block. Who waits here finds what the other one has made."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def missing_programs() -> list[str]:
    """What the machine must have to make and boot such a root."""
    return [name for name in ("mmdebstrap", "systemd-nspawn", "dpkg-deb") if shutil.which(name) is None]


def made(packages: Path) -> Path:
    """The folder of a root for these packages; kept for the next time, until the packages need something else."""
    archives = sorted(packages.glob("*.deb"))
    depends = [
        subprocess.run(["dpkg-deb", "--field", path, "Depends"], capture_output=True, text=True, check=True).stdout
        for path in archives
    ]
    key = hashlib.sha256("\n".join([SUITE, *MACHINE, *OFFERED, *depends]).encode()).hexdigest()[:16]
    root = PLACE / f"clean-root-{key}"
    with alone():
        if not root.exists():
            _make(root, packages)
    return root


def _make(root: Path, packages: Path) -> None:
    sources = subprocess.run([TOP / "deploy/debian/archives", SUITE], capture_output=True, text=True, check=True).stdout
    unfinished = root.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    offered = " ".join(OFFERED)
    fetch = f"apt-get install --yes --download-only -o APT::Install-Recommends=true /packages/*.deb {offered}"
    hooks = [
        'mkdir -p "$1/packages"',
        f'cp "{packages}"/*.deb "$1/packages/"',
        f'chroot "$1" sh -c "{fetch}"',
        'rm -r "$1/packages" && mkdir "$1/packages"',
    ]
    command = ["mmdebstrap", "--mode=root", "--format=directory", "--variant=apt", f"--include={','.join(MACHINE)}"]
    command += ["--skip=cleanup/apt", *(f"--customize-hook={hook}" for hook in hooks), SUITE, str(unfinished), "-"]
    done = subprocess.run(command, input=sources, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"no clean root can be made: {done.stderr[-3000:]}")
    unfinished.rename(root)
