"""`xts report`: one file for a bug report, with what this machine shows about XTS. It contains no secret and no
payload: keys and tokens are files that are only named, and of the environment only our own variables are included.
Addresses, programs' names and log lines are included; the command says so when it writes the file.

A part that is not available is no failure of the report: manifest.json says what each part is, or why it is missing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from xts_messages.settings.configuration_file import parse_toml, read_text
from xts_messages.settings.file_failure import not_made
from xts_messages.terminal.printable import printable

from ..options import add_verb, endpoint_path

_PATIENCE_S = 30
_PART_BYTES_MAX = 16 << 20
_LOG_LINES = 5000
_JOURNALCTL = Path("/usr/bin/journalctl")
_UNITS = ("xts-proxy", "xts-agent")
_PACKAGES = ("xts-offload", "cffi", "msgspec", "prometheus_client", "pyroute2", "rich", "shtab")
CONFIGURATIONS = (Path("/etc/xts/xts-proxy.toml"), Path("/etc/xts/xts-agent.toml"))
_WHAT_IS_IN_IT = "It has addresses, program names and log lines of this machine: read it before you give it to others."


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the report. `make` raises OSError or ValueError with the cause of a failure."""

    name: str
    what: str
    make: Callable[[], str]


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "report", "sudo xts report --output report.tar.gz", run)
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="the file to write (default: xts-report-TIME.tar.gz in this folder)"
    )
    parser.epilog = f"{parser.epilog}\n\nThe file has no keys, tokens or payload. {_WHAT_IS_IN_IT}"


def run(arguments: argparse.Namespace) -> int:
    path = arguments.output or Path(f"xts-report-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    found: dict[str, str] = {}
    manifest = []
    for part in parts():
        row = {"name": part.name, "what": part.what}
        try:
            found[part.name] = part.make()[-_PART_BYTES_MAX:]
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            row["missing"] = (getattr(error, "strerror", None) or str(error)).strip()
        manifest.append(row)
    found["manifest.json"] = json.dumps({"time": int(time.time()), "parts": manifest}, indent=2)
    _write(path, found)
    missing = [row for row in manifest if "missing" in row]
    if arguments.json:
        print(json.dumps({"path": str(path), "missing": missing}, indent=2))
        return 0
    print(f"{path}: {len(found)} files. {_WHAT_IS_IN_IT}")
    for row in missing:
        why = printable((row["missing"].splitlines() or ["no reason was given"])[-1])
        print(f"not in it: {row['name']} ({row['what']}): {why}")
    return 0


def _write(path: Path, found: dict[str, str]) -> None:
    """Writes a new file that only its owner can read. OSError: it exists, or cannot be made."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OSError(error.errno, not_made(path, error)) from error
    folder = path.name.removesuffix(".gz").removesuffix(".tar")
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in found.items():
            data = text.encode(errors="replace")
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(data))


# --- its parts -----------------------------------------------------------------------------------------


def parts() -> Iterator[Part]:
    """In the order in which a reader wants them."""
    endpoint = ["--endpoint", endpoint_path()]
    yield Part("versions.json", "versions of packages, Python and the kernel; processors, memory", _versions)
    yield Part("environment.json", "our environment variables", _environment)
    yield Part(
        "doctor.json", "what works here", lambda: _command("xts", "doctor", "--json", *endpoint, statuses=(0, 1))
    )
    yield Part("status.json", "offloaded sockets", lambda: _command("xts", "status", "--json", *endpoint))
    yield Part(
        "processes.json",
        "programs under `xts run`",
        lambda: _command("xts", "status", "--processes", "--all", "--json", *endpoint),
    )
    yield Part(
        "proxy-status.json",
        "what the proxy does, if it runs here",
        lambda: _command("xts-proxy", "status", "--json", "--connections"),
    )
    for path in CONFIGURATIONS:
        yield Part(f"{path.stem}.json", f"{path}, without its comments", partial(_configuration, path))
    for unit in _UNITS:
        yield Part(f"{unit}.log", f"the last {_LOG_LINES} lines of its log", partial(_log, unit))


def _versions() -> str:
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return json.dumps(
        {
            "packages": packages,
            "python": sys.version,
            "kernel": " ".join((platform.release(), platform.version(), platform.machine())),
            "system": _system(),
            "libc": " ".join(platform.libc_ver()),
            "processors": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "user": os.geteuid(),
        },
        indent=2,
    )


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    except OSError:
        return "?"


def _environment() -> str:
    ours = {name: value for name, value in os.environ.items() if name.startswith("XTS_")}
    return json.dumps(dict(sorted(ours.items())), indent=2)


def _command(name: str, *arguments: str, statuses: tuple[int, ...] = (0,)) -> str:
    """The output of one of our commands, from the same installation."""
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        raise FileNotFoundError(2, f"{program} is not installed")
    return _output([str(program), *arguments], statuses)


def _output(command: list[str], statuses: tuple[int, ...] = (0,)) -> str:
    ended = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode not in statuses:
        raise OSError(ended.returncode, ended.stderr.decode(errors="replace") or f"exit status {ended.returncode}")
    return ended.stdout.decode(errors="replace")


def _configuration(path: Path) -> str:
    """The values only, since a comment may contain anything."""
    return json.dumps(parse_toml(read_text(path)), indent=2, default=str)


def _log(unit: str) -> str:
    if not _JOURNALCTL.exists():
        raise FileNotFoundError(2, f"there is no {_JOURNALCTL}")
    text = _output(
        [str(_JOURNALCTL), f"--unit={unit}", f"--lines={_LOG_LINES}", "--output=short-iso", "--no-pager", "--quiet"]
    )
    if not text:
        raise ValueError(f"the journal has nothing of {unit} that we may read")
    return text
