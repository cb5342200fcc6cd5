"""Measures what each setting of polling does: the round trip of 64 bytes over one connection, its median and 99th
percentile, and how much of each core is busy, with one setting of host or device varied at a time.

Each repetition measures all variants of a path one after the other, beginning with another one each time; medians of
the repetitions count. The client has core 0, proxy and peer have core 1. "at once" asks again when the answer has
come; "paced" asks 2,000 times a second and sleeps in between, so that who waits has to be woken or has polled. The
proxy takes its keys over while it runs; busy polling and deferral need queues of their own, and have labs of their own.
The figures are those of deploy/docs/figures.md.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from xts_lab.launch import raise_file_limit
from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine
from xts_messages.terminal.standard_output import ends_with_reader
from xts_proxy.status import control_socket

from . import analysis, certificates, measured_on, native_programs, resultfile
from .analysis import Figures
from .beds import Bed, raised
from .resultfile import Writer
from .session import Session, session
from .steps import Steps
from .subjects import AFXDP_SOFT, AFXDP_THR, SHM, Subject, Workload

DEFAULT = "default"
RELOAD_S = 10.0


@dataclass(frozen=True, slots=True)
class Variant:
    """`spin_us`: of the host. `host`: variables of its environment. `proxy`: keys of [proxy]. `bed`: another lab."""

    name: str
    spin_us: int = 50
    host: tuple[tuple[str, str], ...] = ()
    proxy: tuple[tuple[str, str | int], ...] = ()
    bed: str = ""


_ALWAYS, _GAP_US = (("XTS_POLLING", "always"),), 200
_PROXY_ALWAYS: tuple[tuple[str, str | int], ...] = (("polling", "always"),)
VARIANTS = (
    Variant(DEFAULT),
    Variant("host: spin_us = 0", spin_us=0),
    Variant("host: spin_us = 1000", spin_us=1000),
    Variant('host: polling = "always"', host=_ALWAYS),
    Variant("proxy: spin_us = 0", proxy=(("spin_us", 0),)),
    Variant("proxy: spin_us = 1000", proxy=(("spin_us", 1000),)),
    Variant('proxy: polling = "always"', proxy=_PROXY_ALWAYS),
    Variant('both: polling = "always"', host=_ALWAYS, proxy=_PROXY_ALWAYS),
    Variant(f"host: spin_us = 0, wakeup_gap_us = {_GAP_US}", spin_us=0, host=(("XTS_WAKEUP_GAP_US", str(_GAP_US)),)),
    Variant(f"proxy: spin_us = 0, wakeup_gap_us = {_GAP_US}", proxy=(("spin_us", 0), ("wakeup_gap_us", _GAP_US))),
    Variant('both: polling = "always", busy_poll_us = 20', host=_ALWAYS, proxy=_PROXY_ALWAYS, bed="polled"),
    Variant("the same, napi_defer_us = 50", host=_ALWAYS, proxy=_PROXY_ALWAYS, bed="deferred"),
)
_PATHS = {"shm": SHM, "afxdp-soft": AFXDP_SOFT, "afxdp-thr": AFXDP_THR}
_LOADS = (
    Workload("at once", "64-byte request, asked at once again", "request", ()),
    Workload("paced", "64-byte request, 2,000 a second", "processes-request", (), rate_per_s=2000),
)
_METRICS = (("p50_us", "p50, us"), ("p99_us", "p99, us"), ("host_share", "host core"), ("device_share", "device core"))
_EXAMPLE = """\
examples:
  PYTHONPATH=tests .venv/bin/python -m bench.polling --repetitions 5 --json polling.jsonl
  PYTHONPATH=tests .venv/bin/python -m bench.polling --results polling.jsonl
Needs root, and cores 0 and 1 that nothing else uses.
"""


def configure(bed: Bed, keys: Mapping[str, str | int]) -> None:
    """The bed's proxy, which runs, has these keys and no others of ours. RuntimeError: it does not take them."""
    folder = Path(bed.endpoint).parent
    file = folder / "proxy.toml"
    names = "|".join(sorted({name for variant in VARIANTS for name, _ in variant.proxy}))
    kept = re.sub(rf"^({names}) = .*\n", "", file.read_text(), flags=re.MULTILINE)
    lines = "".join(
        f'{name} = "{value}"\n' if isinstance(value, str) else f"{name} = {value}\n" for name, value in keys.items()
    )
    file.write_text(kept.replace("[proxy]\n", f"[proxy]\n{lines}", 1))

    def proxy() -> dict[str, object]:
        found: dict[str, object] = control_socket.ask(str(folder / "proxy.sock"), control_socket.Question("status"))[
            "proxy"
        ]
        return found

    before = proxy()
    os.kill(int(str(before["pid"])), signal.SIGHUP)
    deadline = time.monotonic() + RELOAD_S
    while (now := proxy()["reloads"]) == before["reloads"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the proxy of {bed.name} did not read its file again")
        time.sleep(0.01)
    if now["refused"] != before["reloads"]["refused"]:  # type: ignore[index]
        raise RuntimeError(f"the proxy of {bed.name} refuses {dict(keys)}")


def plan(repetitions: int, paths: Sequence[str]) -> list[tuple[str, int, tuple[Variant, ...]]]:
    """Steps: a path, the number of the repetition, and the variants in their order."""
    steps = []
    for number in range(repetitions):
        for path in paths:
            mine = [variant for variant in VARIANTS if not variant.bed or path.startswith("afxdp")]
            turn = number * 7 % len(mine)
            steps.append((path, number, (*mine[turn:], *mine[:turn])))
    return steps


def table(data: Figures, path: str, load: Workload) -> Table:
    """Medians of the default and of all variants, with their ranges."""
    out = Table(title=f"{path}, {load.title}: median (range over the repetitions)", title_justify="left")
    for title in ("setting", *(title for _, title in _METRICS)):
        out.add_column(title, justify="left" if title == "setting" else "right", no_wrap=title == "setting")
    for row in rows(data, path, load):
        out.add_row(*row)
    return out


def rows(data: Figures, path: str, load: Workload) -> list[tuple[str, ...]]:
    found = data.get(load.key, {})
    return [
        (variant.name, *(_cell(found[key].get(metric, {}), metric) for metric, _ in _METRICS))
        for variant in VARIANTS
        if (key := f"{path} {variant.name}") in found
    ]


def _cell(values: Mapping[int, float], metric: str) -> str:
    if not values:
        return ""
    spread = analysis.spread(values)
    form = ".0%" if metric.endswith("share") else ",.1f"
    return f"{spread.median:{form}} ({spread.low:{form}}–{spread.high:{form}})"


def markdown(data: Figures, paths: Sequence[str]) -> str:
    """The tables of deploy/docs/figures.md: one for each path, both loads side by side."""
    lines = []
    for path in paths:
        heads = [f"{load.key}: {title}" for load in _LOADS for _, title in _METRICS]
        lines += [f"\n| {path} | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
        by_load = [{row[0]: row[1:] for row in rows(data, path, load)} for load in _LOADS]
        for name in by_load[0]:
            cells = [cell for one in by_load for cell in one.get(name, ())]
            lines.append(f"| `{name}` | ".replace("`default`", "the defaults") + " | ".join(cells) + " |")
    return "\n".join(lines)


def _subject(path: str, variant: Variant) -> Subject:
    base = _PATHS[path]
    return replace(
        base,
        key=f"{path} {variant.name}",
        label=f"{base.label}, {variant.name}",
        queue=variant.bed or base.queue,
        settings=variant.host,
    )


def _measure(live: Session, arguments: argparse.Namespace, writer: Writer, steps: Steps) -> None:
    todo = plan(arguments.repetitions, arguments.path or list(_PATHS))
    for path, number, order in steps.through(todo, lambda step: f"{step[0]}, {step[1] + 1}"):
        for variant in order:
            subject = _subject(path, variant)
            configure(live.bed(subject), dict(variant.proxy))
            for load in _LOADS:
                run = live.run(replace(load, spin_us=variant.spin_us), subject, number, arguments.seconds)
                writer.run(run)
            configure(live.bed(subject), {})


def _measure_all(arguments: argparse.Namespace, writer: Writer) -> None:
    paths = arguments.path or list(_PATHS)
    beds = ["shm"] if "shm" in paths else []
    beds += ["afxdp", "polled", "deferred"] if set(paths) - {"shm"} else []
    with tempfile.TemporaryDirectory(prefix="xts-bench-") as directory, Steps(Console(stderr=True)) as steps:
        made = certificates.make(Path(directory))
        programs = native_programs.build(native_programs.TOP / "build" / "bench")
        with (
            raised(beds, made.tables()) as (baseline, found),
            session(baseline, found, programs, arguments.patience, made) as live,
        ):
            facts = measured_on.record([baseline, *found.values()], sys.argv)
            writer.add("environment", facts | {"command": "python -m bench.polling"})
            _measure(live, arguments, writer, steps)


def _parser() -> argparse.ArgumentParser:
    found = CommandLine(
        prog="python -m bench.polling",
        description=__doc__,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--path", action="append", choices=_PATHS, help="may be repeated; default: all")
    add("--repetitions", type=int, default=5, metavar="N", help="default: 5")
    add("--seconds", type=float, default=0.5, metavar="S", help="length of a window; default: 0.5")
    add("--patience", type=float, default=1.0, metavar="S", help="for runs that others disturb; default: 1")
    add("--json", type=Path, metavar="FILE", help="write each result to a new FILE as it comes, a JSON object a line")
    add("--results", type=Path, metavar="FILE", help="measure nothing: print what such a file has")
    add("--markdown", action="store_true", help="print the tables as the documents have them")
    return found


def show(console: Console, recorded: resultfile.Recorded, paths: Sequence[str], *, as_markdown: bool) -> None:
    data = analysis.figures(recorded.runs)
    if as_markdown:
        print(markdown(data, paths))
        return
    for path in paths:
        for load in _LOADS:
            console.print(table(data, path, load))


@ends_with_reader
def main() -> int:
    arguments = _parser().parse_args()
    console = Console(width=terminal.piped_columns(130))
    paths = arguments.path or list(_PATHS)
    if arguments.results:
        show(console, resultfile.read(arguments.results), paths, as_markdown=arguments.markdown)
        return 0
    if os.geteuid() != 0:
        print("bench.polling: needs root: it makes network namespaces and pins processes to cores", file=sys.stderr)
        return 2
    with suppress(OSError):  # whoever started us may keep to one core
        os.sched_setaffinity(0, {0, 1})
    if os.sched_getaffinity(0) != {0, 1}:
        print("bench.polling: needs two cores, 0 and 1", file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {1})
    raise_file_limit()
    with Writer(arguments.json) as writer:
        _measure_all(arguments, writer)
    show(console, writer.recorded, paths, as_markdown=arguments.markdown)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bench.polling: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
