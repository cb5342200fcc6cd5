"""Builds the native programs of the bench: the client twice (kernel sockets, libxts) and the peer."""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "tests" / "bench" / "native"
_FLAGS = [
    "-std=gnu11",
    "-O2",
    "-g",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
]
_CLIENT = ["client.c", "workloads.c", "workloads_many.c", "measure.c"]


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of what was built."""

    client_kernel: Path
    client_xts: Path
    peer: Path


def libxts_directory() -> Path:
    """Where the installed package has libxts.so; FileNotFoundError says what to do."""
    spec = importlib.util.find_spec("xts_socket._native")
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / "libxts.so").exists():
        raise FileNotFoundError("libxts.so is not built: run ./deploy/setup (or pip install -e .) first")
    return Path(spec.origin).parent


def compile_program(output: Path, sources: list[Path], xts: bool = False, includes: tuple[Path, ...] = ()) -> Path:
    """Compiles when a source is newer than the program. `xts`: links with the installed libxts."""
    headers = [
        header
        for directory in {source.parent for source in sources} | set(includes)
        for header in directory.glob("*.h")
    ]
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    if output.exists() and output.stat().st_mtime > newest:
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "cc",
        *_FLAGS,
        *(f"-I{directory}" for directory in includes),
        "-o",
        str(output),
        *map(str, sources),
        "-pthread",
    ]
    if xts:
        directory = libxts_directory()
        command += [f"-I{TOP / 'host_lib' / 'native'}", f"-L{directory}", "-lxts", f"-Wl,-rpath,{directory}"]
    subprocess.run(command, check=True)
    return output


def build(directory: Path) -> Programs:
    """Builds all three into `directory`."""
    client = [NATIVE / name for name in _CLIENT]
    return Programs(
        compile_program(directory / "client-kernel", [*client, NATIVE / "net_api_kernel.c"]),
        compile_program(directory / "client-xts", [*client, NATIVE / "net_api_xts.c"], xts=True),
        compile_program(directory / "peer", [NATIVE / "peer.c", NATIVE / "measure.c"]),
    )
