"""The command: `./tests/attack/run`."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from xts_messages.terminal import terminal
from xts_messages.terminal.standard_output import ends_with_reader
from xts_messages.version import __version__

from . import page, report
from .attacks import ATTACKS, Attack
from .measure import Result, Settings, stage
from .summary import Summary

#: What a stage, or an attack on it, takes apart from its slots; and a slot apart from its time.
_OVERHEAD_S, _SLOT_OVERHEAD_S = 6.0, 0.45


def _parser() -> argparse.ArgumentParser:
    names = [attack.name for attack in ATTACKS]
    parser = argparse.ArgumentParser(
        prog="tests/attack/run",
        description="Attacks a proxy and prints what bystanders on other queues of the same worker notice, one of the "
        "attacker's own tenant and one of another: 64-byte requests at a steady pace, without the attack, with it, and "
        "with it on another proxy of the same core, in turns; and the account of each tenant.",
        epilog="examples:\n  ./tests/attack/run --only lingering-closes --queue shm --slots-most 96\n"
        "  ./tests/attack/run --slots-most 96 --results tests/attack/results/DATE.jsonl --resume\n"
        "  ./tests/attack/run --into deploy/docs/attacks.md     # from tests/attack/results\n\nattacks:\n"
        + "".join(f"  {attack.name:<22} {attack.tries}\n" for attack in ATTACKS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="an attack; may be repeated")
    parser.add_argument("--queue", action="append", choices=("afxdp", "shm", "shm-loopback"), help="may be repeated")
    parser.add_argument("--slots", type=int, default=12, metavar="N", help="of each kind (default 12)")
    parser.add_argument(
        "--slots-most",
        type=int,
        metavar="N",
        help="while a verdict is open, measure twice as many slots, and again, up to N of each kind (default: as "
        "--slots)",
    )
    parser.add_argument("--seconds", type=float, default=0.25, metavar="S", help="of each slot (default 0.25)")
    parser.add_argument("--no-control", action="store_true", help="attack no other proxy of the same core")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep what is measured in FILE, a line an attack")
    parser.add_argument("--resume", action="store_true", help="leave out what --results has of this commit")
    parser.add_argument("--most", type=float, metavar="S", help="begin no attack that might end after S seconds")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="PAGE",
        help="measure nothing: put the tables into PAGE (deploy/docs/attacks.md), from the files of --results, or of "
        "tests/attack/results",
    )
    return parser


def _commit() -> str:
    """Of what is measured; "+": and changes."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _measured_on() -> dict[str, str]:
    """The machine, and the day."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release().partition("-")[0],
    }


class Kept:
    """The summaries, and the file that they are kept in."""

    def __init__(self, file: Path | None, *, resume: bool) -> None:
        self.file, self.commit, self.measured_on = file, _commit(), _measured_on()
        self.all: list[Summary] = page.read([file]) if file and resume and file.exists() else []

    def has(self, attack: Attack, queue: str) -> bool:
        return any((one.attack, one.queue, one.commit) == (attack.name, queue, self.commit) for one in self.all)

    def of(self, result: Result, how: Settings) -> Summary:
        return Summary.of(result, self.commit, self.measured_on, len(how.looks))

    def add(self, summary: Summary) -> None:
        self.all = [one for one in self.all if (one.attack, one.queue) != (summary.attack, summary.queue)]
        self.all.append(summary)
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new = self.file.with_suffix(".new")
            new.write_text("".join(f"{one.kept()}\n" for one in self.all))
            new.rename(self.file)


@ends_with_reader
def main() -> int:
    """Exit status: 0, all held; 1, a bystander noticed more than it may; 2, it could not be measured."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.into:
        return _put_into(arguments.into, [arguments.results or page.RESULTS])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is taken down on the way out
    queues = arguments.queue or (["afxdp", "shm"] if os.geteuid() == 0 else ["shm-loopback"])
    slots_most = arguments.slots_most or arguments.slots
    how = Settings(arguments.slots, slots_most, arguments.seconds, control=not arguments.no_control)
    if arguments.slots < 2 or slots_most < arguments.slots:
        parser.error("--slots is 2 at least, and --slots-most no less")
    if arguments.most and arguments.most < _OVERHEAD_S + _most_s(how):
        parser.error(f"one attack may take {_OVERHEAD_S + _most_s(how):.0f} s, which is more than --most")
    try:
        kept = Kept(arguments.results, resume=arguments.resume)
    except ValueError as error:
        parser.error(str(error))
    ends_s = time.monotonic() + (arguments.most or float("inf"))
    wanted = [attack for attack in ATTACKS if not arguments.only or attack.name in arguments.only]
    failed = False
    for queue in queues:
        left = [attack for attack in wanted if queue in attack.queues and not kept.has(attack, queue)]
        failed |= not _measure_all(left, queue, how, kept, ends_s)
    if any(not one.traced for one in kept.all):
        print("tests/attack/run: no trace of the scheduler (root, tracefs): what other programs took is in the figures")
    noticed = _show(kept.all)
    return 2 if failed else int(noticed)


def _put_into(into: Path, results: list[Path]) -> int:
    try:
        page.put_into(into, page.read(results))
    except (OSError, ValueError) as error:
        print(f"tests/attack/run: {error}", file=sys.stderr)
        return 2
    return 0


def _most_s(how: Settings) -> float:
    """What an attack takes at most."""
    return len(how.kinds) * how.looks[-1] * (how.seconds + _SLOT_OVERHEAD_S)


def _measure_all(attacks: list[Attack], queue: str, how: Settings, kept: Kept, ends_s: float) -> bool:
    """Those that there is time for. False: one could not be measured; the others were."""
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    each_s = _most_s(how)
    left, failed = list(attacks), False
    while left and time.monotonic() + each_s + _OVERHEAD_S < ends_s:
        attack = left[0]
        try:
            with stage(queue, how, left) as made:
                while left and time.monotonic() + each_s < ends_s:
                    attack = left.pop(0)
                    result = made.measure(attack, progress.print, lambda result: kept.of(result, how).is_told())
                    kept.add(kept.of(result, how))
                    progress.print(report.line(kept.all[-1]))
        except (OSError, RuntimeError) as error:  # what was measured before and what comes after is worth having
            failed = True
            print(f"tests/attack/run: {attack.name} over {queue}: {error}", file=sys.stderr)
            left = [one for one in left if one is not attack]
    return not failed


def _show(summaries: list[Summary]) -> bool:
    """Has a bystander noticed more than it may?"""
    console = Console(width=terminal.piped_columns(280))
    console.print(report.table(summaries))
    for summary in summaries:
        report.show_account(console, summary)
    noticed = [
        f"{one.attack} ({one.queue}, {who}: {verdict})"
        for one in summaries
        for who in one.bystanders
        if (verdict := one.verdict(who)) in ("reset", "missed")
    ]
    if noticed:
        print(f"a bystander noticed: {', '.join(noticed)}")
    return bool(noticed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
