"""Builds the native programs of the bench: the client (kernel sockets, libxts, each also with TLS) and the peer."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
#: Headers that xts.h includes.
_MESSAGES = (TOP / "messages" / "native",)
_OPENSSL = ("-lssl", "-lcrypto")
_CLIENT = ["client.c", "pdus.c", "workloads.c", "workloads_many.c", "workloads_threads.c", "workloads_datagrams.c"]
_CLIENT += [
    "connections.c",
    "workloads_rate.c",
    "workloads_processes.c",
    "workloads_groups.c",
    "workloads_names.c",
    "workloads_accept.c",
    "measure.c",
]


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of what was built."""

    client_kernel: Path
    client_xts: Path
    client_openssl: Path
    client_xts_tls: Path
    peer: Path
    datagram_peer: Path
    tls_load: Path


def libxts_directory() -> Path:
    """Where the installed package has libxts.so.1; FileNotFoundError says what to do."""
    spec = importlib.util.find_spec("xts_socket._native")
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / "libxts.so.1").exists():
        raise FileNotFoundError("libxts.so.1 is not built: run ./deploy/setup (or pip install -e .) first")
    return Path(spec.origin).parent


def compile_program(
    output: Path,
    sources: list[Path],
    libxts: Path | None = None,
    includes: tuple[Path, ...] = (),
    flags: tuple[str, ...] = (),
) -> Path:
    """Compiles when a source is newer than the program, or it was made by another command (another libxts, say).
    `libxts`: links with the libxts.so.1 of this directory."""
    watched = [
        header
        for directory in {source.parent for source in sources} | set(includes)
        for header in directory.glob("*.h")
    ]
    libraries = [libxts / "libxts.so.1"] if libxts else []
    newest = max(path.stat().st_mtime for path in [*sources, *watched, *libraries])
    command = ["cc", *_FLAGS, *(f"-I{directory}" for directory in includes), "-o", str(output), *map(str, sources)]
    if libxts:
        headers = (TOP / "host_lib" / "native", TOP / "messages" / "native")
        command += [
            *(f"-I{directory}" for directory in headers),
            f"-L{libxts}",
            "-l:libxts.so.1",
            f"-Wl,-rpath,{libxts}",
        ]
    command += ["-pthread", *flags]
    made_by = output.with_name(f"{output.name}.command")
    same = made_by.exists() and made_by.read_text() == "\n".join(command)
    if same and output.exists() and output.stat().st_mtime > newest:
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, check=True)
    made_by.write_text("\n".join(command))
    return output


def build(directory: Path) -> Programs:
    """Builds them into `directory`, as many at a time as there are cores."""
    client = [NATIVE / name for name in _CLIENT]
    peer = [NATIVE / name for name in ("peer.c", "peer_tls.c", "pdus.c", "measure.c")]
    libxts = libxts_directory()
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def begin(name: str, sources: list[Path], *options: Any) -> Future[Path]:
            return pool.submit(compile_program, directory / name, sources, *options)

        kernel = begin("client-kernel", [*client, NATIVE / "net_api_kernel.c"])
        xts = begin("client-xts", [*client, NATIVE / "net_api_xts.c"], libxts, _MESSAGES)
        openssl = begin("client-openssl", [*client, NATIVE / "net_api_openssl.c"], None, (), _OPENSSL)
        xts_tls = begin("client-xts-tls", [*client, NATIVE / "net_api_xts_tls.c"], libxts, _MESSAGES)
        server = begin("peer", peer, None, (), _OPENSSL)
        datagrams = begin("datagram-peer", [NATIVE / "datagram_peer.c", NATIVE / "measure.c"])
        load = begin("tls-load", [NATIVE / "tls_load.c", NATIVE / "measure.c"], None, (), _OPENSSL)
    clients = (kernel.result(), xts.result(), openssl.result(), xts_tls.result())
    return Programs(*clients, server.result(), datagrams.result(), load.result())
