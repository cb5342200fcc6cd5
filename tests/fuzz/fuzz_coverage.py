"""Which lines the corpus of a target reaches, by clang's source-based coverage: file by file, and as rows of the table
in dpu_proxy/SECURITY.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def _tool(name: str) -> str:
    """Debian has it with a version, or without."""
    clang = Path(shutil.which("clang") or "clang").resolve()
    neighbour = clang.with_name(name)
    return str(neighbour) if neighbour.exists() else name


#: What each target is for: files, by how their paths begin; "*.c": those of a folder, without what is deeper.
MAIN: dict[str, tuple[str, ...]] = {
    "fuzz_messages": ("messages/native/wire/wire.h",),
    "fuzz_link": ("messages/native/link/",),
    "fuzz_worker": (
        "dpu_proxy/native/addresses/",
        "dpu_proxy/native/channel/",
        "dpu_proxy/native/connection/",
        "dpu_proxy/native/datagrams/",
        "dpu_proxy/native/loop/",
        "dpu_proxy/native/processes/",
        "dpu_proxy/native/pushed/",
        "dpu_proxy/native/tenants/",
        "dpu_proxy/native/turns/",
        "dpu_proxy/native/worker/",
    ),
    "fuzz_stack": (
        "dpu_proxy/native/ulp/*.c",
        "dpu_proxy/native/ulp/framing/",
        "dpu_proxy/native/ulp/http2/",
        "dpu_proxy/native/ulp/grpc/",
    ),
    "fuzz_layers": ("dpu_proxy/native/ulp/mpa/", "dpu_proxy/native/ulp/nvme_tcp/"),
    "fuzz_arq": tuple(
        f"messages/native/decorators/{name}.c"
        for name in ("arq", "arq_admit", "arq_dead", "arq_sender", "arq_receiver", "arq_congestion")
    ),
    "fuzz_bundle": ("messages/native/decorators/bundle.c",),
    "fuzz_headed": ("messages/native/decorators/headed.c",),
    "fuzz_parts": ("messages/native/decorators/parts.c",),
    "fuzz_datagram": ("messages/native/wire/datagram.c",),
    "fuzz_mux": ("messages/native/relay/mux.c",),
    "fuzz_tls": ("dpu_proxy/native/ulp/tls/",),
    "fuzz_tls_keys": ("dpu_proxy/native/ulp/tls_keys/",),
    "fuzz_shm": tuple(f"messages/native/queues/{name}.c" for name in ("shm", "shm_open", "shm_restore")),
    "fuzz_settings": ("messages/native/settings/settings_file.c",),
    "fuzz_names": ("dpu_proxy/native/names/name_message.c",),
    "fuzz_record": ("messages/native/wire/record", "dpu_proxy/native/connection/tcp_record.c"),
    "fuzz_datagram_side": ("dpu_proxy/native/datagrams/datagram_record.c",),
    "fuzz_socket_record": tuple(f"host_lib/native/processes/{name}.c" for name in ("record_file", "socket_record")),
    "fuzz_rules": ("host_lib/native/rules/",),
    "fuzz_host": ("host_lib/native/", "host_lib/native/datagrams/", "host_lib/native/ulps/"),
}

Row = tuple[str, int, int]  # file, lines reached, lines


def _is_of(name: str, main: str) -> bool:
    folder = main.removesuffix("*.c")
    return name.startswith(folder) and (folder == main or "/" not in name.removeprefix(folder))


def table(target: str, rows: list[Row]) -> list[str]:
    """Lines of Markdown: what the target is for, and everything that it is built with."""
    parts = [(f"`{main}`", [row for row in rows if _is_of(row[0], main)]) for main in MAIN[target]]
    lines = []
    for what, of_it in [*parts, ("all that it is built with", rows)]:
        reached, count = sum(row[1] for row in of_it), sum(row[2] for row in of_it)
        name = "" if lines else f"`{target}`"
        lines.append(f"| {name} | {what} | {count} | {100 * reached / max(1, count):.0f} % |")
    return lines


def print_coverage(target: str, binary: Path, directory: Path) -> list[str]:
    """Runs the corpus once and prints a line for each file of the product. The target's rows of the table.
    CalledProcessError: a tool failed."""
    raw, merged = directory / "coverage.raw", directory / "coverage"
    inputs = [str(path) for path in sorted((directory / "corpus").iterdir())]
    subprocess.run(
        [str(binary), "-runs=0", str(directory / "corpus")],
        env=os.environ | {"LLVM_PROFILE_FILE": str(raw)},
        check=True,
        capture_output=True,
    )
    subprocess.run([_tool("llvm-profdata"), "merge", "-sparse", str(raw), "-o", str(merged)], check=True)
    report = subprocess.run(
        [_tool("llvm-cov"), "export", "-summary-only", f"-instr-profile={merged}", str(binary)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows: list[Row] = []
    for entry in json.loads(report.stdout)["data"][0]["files"]:
        path = Path(entry["filename"])
        if path.is_relative_to(TOP) and not path.is_relative_to(TOP / "tests"):
            lines = entry["summary"]["lines"]
            if not lines["count"]:
                continue
            rows.append((str(path.relative_to(TOP)), int(lines["covered"]), int(lines["count"])))
    reached, count = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{target}: {len(inputs)} inputs reach {reached} of {count} lines, {100 * reached / max(1, count):.1f} %")
    for name, covered, lines_of_file in sorted(rows, key=lambda row: row[1] / max(1, row[2])):
        print(f"  {100 * covered / max(1, lines_of_file):5.1f} %  {covered:5d} of {lines_of_file:5d}  {name}")
    return table(target, rows)
