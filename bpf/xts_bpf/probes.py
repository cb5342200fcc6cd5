"""The static probes of libxts and of the proxy (messages/native/common/probe.h), read with bcc.

bcc compiles a program when it is loaded, and requires kernel headers. Our programs use no structures of the kernel, so
the headers of another version serve as well: if those of the running kernel are missing, Debian's linux-headers are
used, whose two folders are merged for the compiler.

A probe is attached to a file, not to a process: it fires in every process that runs the file, even one that starts
later, or in a container. The files are found in the memory maps of the processes that are running.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xts_messages.machine import trace_needs

PROVIDER = b"xts"
#: The types of a probe's arguments, as in messages/native/common/probe.h.
ARGUMENTS = {
    "send_call": ("s32", "u64"),
    "send_taken": ("u64", "u32", "u64"),
    "send_queued": ("u64", "u32", "u64", "u32", "u32"),
    "host_sleep": (),
    "host_wake": (),
    "worker_frames": ("u32", "u32"),
    "worker_took": ("u64", "u32", "u64"),
    "worker_offers": ("u64", "u32", "u64"),
    "worker_wrote": ("u64", "u32", "u64", "u32"),
    "worker_replies": ("u32", "u32", "u32"),
    "worker_sleep": (),
    "worker_wake": (),
}
_FILE = re.compile(r"/(libxts\.so\.[0-9.]+|xts_proxy/_native\.[^/]*so)$")


class TraceError(Exception):
    """Tracing is not possible here; the text says why and what would help."""


# --- kernel headers ------------------------------------------------------------------------------------


def _merge(into: Path, *folders: Path) -> None:
    into.mkdir(parents=True)
    for folder in folders:
        for entry in folder.iterdir():
            if not (into / entry.name).is_symlink():
                (into / entry.name).symlink_to(entry)


@contextmanager
def kernel_headers() -> Iterator[None]:
    """Provides them while a program is compiled. TraceError: there are none."""
    if trace_needs.own_headers():
        yield
        return
    found = trace_needs.debian_headers()
    if not found:
        raise TraceError(trace_needs.lacks_headers())
    own, common = found
    architecture = {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    with tempfile.TemporaryDirectory(prefix="xts-headers-") as folder:
        for part in ("include", f"arch/{architecture}/include"):
            _merge(Path(folder, part), *(place / part for place in (own, common) if (place / part).is_dir()))
        os.environ["BCC_KERNEL_SOURCE"] = folder
        try:
            yield
        finally:
            del os.environ["BCC_KERNEL_SOURCE"]


def require_tracefs() -> None:
    """TraceError: it is not mounted. bcc attaches probes without it, but cannot remove them."""
    if lacking := trace_needs.lacks_tracefs():
        raise TraceError(lacking)


# --- files with probes ---------------------------------------------------------------------------------


def _mapped(pid: str) -> set[str]:
    found = set()
    with suppress(OSError):
        for line in Path("/proc", pid, "maps").read_text(errors="replace").splitlines():
            path = line.partition("/")[2]
            if path and _FILE.search(f"/{path}"):
                found.add(f"/proc/{pid}/root/{path}")
    return found


def _lasting(path: str, stat: os.stat_result) -> Path:
    """Our own path of a file of another process, if there is one: it is still there when the process has ended."""
    own = Path("/", *Path(path).parts[4:])  # without /proc/PID/root
    with suppress(OSError):
        if os.path.samestat(own.stat(), stat):
            return own
    return Path(path)


def files_with_probes(pids: Collection[int] = ()) -> list[Path]:
    """The files of the running processes, or of these processes only, each once."""
    found: dict[tuple[int, int], Path] = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or (pids and int(process.name) not in pids):
            continue
        for path in _mapped(process.name):
            with suppress(OSError):  # it has been replaced, or the process has ended
                stat = Path(path).stat()
                found.setdefault((stat.st_dev, stat.st_ino), _lasting(path, stat))
    return list(found.values())


# --- programs ------------------------------------------------------------------------------------------


def _handler(probe: str, number: int, pids: Collection[int]) -> str:
    """The code that runs at a probe of a file: it reads the arguments, and calls on_PROBE() with them. Limited to pids,
    if there are any, since other processes may run the same file."""
    types = ARGUMENTS[probe]
    lines = ["u32 pid = bpf_get_current_pid_tgid() >> 32;"] if pids else []
    lines += [f"if ({' && '.join(f'pid != {one}' for one in sorted(pids))}) return 0;"] if pids else []
    lines += [f"{kind} a{i} = 0;" for i, kind in enumerate(types)]
    lines += [f"bpf_usdt_readarg({i + 1}, ctx, &a{i});" for i in range(len(types))]
    lines.append(f"on_{probe}({', '.join(f'a{i}' for i in range(len(types)))});")
    return f"int at_{probe}_{number}(struct pt_regs *ctx)\n{{\n\t" + "\n\t".join([*lines, "return 0;"]) + "\n}\n"


#: For the programs' histograms: how many values lie in each of the slots of a table, with four slots for each power of
#: two.
COUNTING = """
#include <uapi/linux/ptrace.h>
struct slot_t { u32 what; u32 who; u32 slot; };
BPF_HASH(counts, struct slot_t, u64, 65536);

static __always_inline u32 slot_of(u64 value)
{
    u32 log = bpf_log2l(value) - 1;

    return value < 8 ? value : 8 + (log - 3) * 4 + ((value >> (log - 2)) & 3);
}

static __always_inline void count(u32 what, u32 who, u64 value)
{
    struct slot_t key = { .what = what, .who = who, .slot = slot_of(value) };

    counts.increment(key);
}
"""


def slot_limit(slot: int) -> int:
    """The largest value in a slot."""
    if slot < 8:
        return slot
    log, quarter = 3 + (slot - 8) // 4, (slot - 8) % 4
    return ((5 + quarter) << (log - 2)) - 1


class Watch:
    """A program attached to its probes, from its construction on. A context manager.

    `source`: C code with a function on_PROBE() for each of `probes`. `pids`: only these processes; empty: all.
    TraceError: it is not possible here.
    """

    def __init__(self, source: str, probes: tuple[str, ...], pids: Collection[int] = ()) -> None:
        try:
            from bcc import BPF, USDT
        except ImportError:
            raise TraceError(trace_needs.NO_BCC) from None
        if os.geteuid():
            raise TraceError("watching other processes needs root")
        texts, contexts = [COUNTING, source], []
        wanted = set(probes)
        for number, path in enumerate(files_with_probes(pids)):
            try:
                context = USDT(path=str(path))
            except Exception:
                continue  # the process has ended
            there = {p.name.decode() for p in context.enumerate_probes() if p.provider == PROVIDER} & set(probes)
            for probe in sorted(there):
                context.enable_probe(probe=probe, fn_name=f"at_{probe}_{number}")
                texts.append(_handler(probe, number, pids))
            if there:
                contexts.append(context)
            wanted -= there
        if not contexts:
            raise TraceError(
                "no running process has the probes: start xts-proxy, or a program under xts run; or they were built"
                " without <sys/sdt.h> (Debian: systemtap-sdt-dev)"
            )
        require_tracefs()
        self.missing = sorted(wanted)
        try:
            with kernel_headers():
                self._bpf: Any = BPF(text="".join(texts).encode(), usdt_contexts=contexts)
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(f"bcc: {error}; its messages above say more") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def counts(self) -> dict[tuple[int, int], dict[int, int]]:
        """By kind and process: how many values, by the largest value of their slot."""
        found: dict[tuple[int, int], dict[int, int]] = {}
        for key, value in self._bpf[b"counts"].items():
            found.setdefault((key.what, key.who), {})[slot_limit(key.slot)] = int(value.value)
        return found

    def close(self) -> None:
        """Removes the probes. May be called again."""
        if self._bpf is not None:
            self._bpf.cleanup()
            self._bpf = None


def percentile(values: dict[int, int], part: float) -> int:
    """The smallest limit of a slot below which this part of the values lies."""
    left = sum(values.values()) * part
    for limit, number in sorted(values.items()):
        left -= number
        if left <= 0:
            return limit
    return max(values, default=0)
