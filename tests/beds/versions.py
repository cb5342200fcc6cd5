"""An older version of everything: library, agent and proxy of either version can be run with the other's.

Which one: a commit or tag by XTS_TEST_PREVIOUS, else the newest tag of a release that this history has, else PREVIOUS.
It is built once, in an environment of its own, with the Python libraries of today's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from beds.patience import SLOWER

TOP = Path(__file__).parents[2]
#: For a history in which no release before HEAD has a tag. Of datagram sockets this commit has the first messages only,
#: so that a part of either version meets one that lacks something.
PREVIOUS = "8bcfd34f"
#: For queues over RDMA: the last one whose workers have the queue pairs, so that no upgrade keeps connections.
OVER_RDMA = "fa896887"
#: For queues with small chunks: the last one that knows others only.
BEFORE_SMALL_CHUNKS = "578d4b66"
BUILD_S = 600 * SLOWER


class NoVersionError(Exception):
    """The history here has no older version; says why."""


@dataclass(frozen=True)
class Version:
    name: str
    python: str

    def program(self, module: str, *arguments: str) -> list[str]:
        return [self.python, "-m", module, *arguments]


TODAY = Version("today", sys.executable)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", TOP, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoVersionError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _revision() -> str:
    named = os.environ.get("XTS_TEST_PREVIOUS") or _git("tag", "--list", "v*", "--merged", "HEAD^", "--sort=-v:refname")
    return _git("rev-parse", "--verify", (named.split() or [PREVIOUS])[0] + "^{commit}")


def previous() -> Version:
    """Built when it is asked for the first time. NoVersionError; RuntimeError: it cannot be built."""
    return _of_commit(_revision())


def version_of(name: str) -> Version:
    """That of a commit or tag. As previous()."""
    return _of_commit(_git("rev-parse", "--verify", name + "^{commit}"))


def _of_commit(commit: str) -> Version:
    place = TOP / "build/versions" / commit
    python = place / "environment/bin/python"
    if not (place / "built").exists():
        shutil.rmtree(place, ignore_errors=True)
        _build(commit, place, python)
        (place / "built").touch()
    return Version(commit[:8], str(python))


def _build(commit: str, place: Path, python: Path) -> None:
    source = place / "source"
    source.mkdir(parents=True)
    with subprocess.Popen(["git", "-C", TOP, "archive", commit], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", source], stdin=archive.stdout, check=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place / "environment"], check=True)
    [site] = (place / "environment/lib").glob("python3.*/site-packages")
    libraries = Path(sysconfig.get_path("purelib"))
    system = libraries / "system.pth"  # where today's environment has Debian's own
    (site / "borrowed.pth").write_text(f"{libraries}\n" + (system.read_text() if system.exists() else ""))
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", source]
    command += ["--no-build-isolation", "--no-deps", f"--config-settings=build-dir={place / 'build'}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{commit} cannot be built: {(done.stdout + done.stderr)[-2000:]}")
