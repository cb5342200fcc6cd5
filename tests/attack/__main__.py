"""The command: `./tests/attack/run`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from xts_messages.standard_output import ends_with_reader
from xts_messages.version import __version__

from . import report
from .attacks import ATTACKS, Attack
from .measure import Settings, stage
from .summary import Summary

#: What a stage, or an attack on it, takes apart from its slots.
_OVERHEAD_S = 6.0


def _parser() -> argparse.ArgumentParser:
    names = [attack.name for attack in ATTACKS]
    parser = argparse.ArgumentParser(
        prog="tests/attack/run",
        description="Attacks a proxy and prints what bystanders on other queues of the same worker notice, one of the "
        "attacker's own tenant and one of another: 64-byte requests at a steady pace, without the attack, with it, and "
        "with it on another proxy of the same core, in turns; and the account of each tenant.",
        epilog="example: ./tests/attack/run --only lingering-closes --queue shm --slots 20\n\nattacks:\n"
        + "".join(f"  {attack.name:<22} {attack.tries}\n" for attack in ATTACKS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="an attack; may be repeated")
    parser.add_argument("--queue", action="append", choices=("afxdp", "shm", "shm-loopback"), help="may be repeated")
    parser.add_argument("--slots", type=int, default=12, metavar="N", help="of each kind (default 12)")
    parser.add_argument("--seconds", type=float, default=0.25, metavar="S", help="of each slot (default 0.25)")
    parser.add_argument("--no-control", action="store_true", help="attack no other proxy of the same core")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep what is measured in FILE, as it comes")
    parser.add_argument("--resume", action="store_true", help="leave out what --results has of this commit")
    parser.add_argument("--most", type=float, metavar="S", help="begin no attack that would end after S seconds")
    parser.add_argument("--markdown", action="store_true", help="print the table of deploy/docs/attacks.md")
    return parser


def _commit() -> str:
    """Of what is measured; "+": and changes."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


class Kept:
    """The summaries, and the file that they are kept in."""

    def __init__(self, file: Path | None, *, resume: bool) -> None:
        self.file, self.commit = file, _commit()
        self.all: list[Summary] = []
        if file and resume and file.exists():
            self.all = [Summary.read(kept) for kept in json.loads(file.read_text())]

    def has(self, attack: Attack, queue: str) -> bool:
        return any((one.attack, one.queue, one.commit) == (attack.name, queue, self.commit) for one in self.all)

    def add(self, summary: Summary) -> None:
        self.all = [one for one in self.all if (one.attack, one.queue) != (summary.attack, summary.queue)]
        self.all.append(summary)
        if self.file:
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps([one.keep() for one in self.all], indent=1) + "\n")
            new.rename(self.file)


@ends_with_reader
def main() -> int:
    """Exit status: 0, all held; 1, a bystander noticed more than it may; 2, it could not be measured."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is taken down on the way out
    queues = arguments.queue or (["afxdp", "shm"] if os.geteuid() == 0 else ["shm-loopback"])
    how = Settings(arguments.slots, arguments.seconds, control=not arguments.no_control)
    kept = Kept(arguments.results, resume=arguments.resume)
    ends_s = time.monotonic() + (arguments.most or float("inf"))
    wanted = [attack for attack in ATTACKS if not arguments.only or attack.name in arguments.only]
    failed = False
    for queue in queues:
        left = [attack for attack in wanted if queue in attack.queues and not kept.has(attack, queue)]
        failed |= not _measure_all(left, queue, how, kept, ends_s)
    noticed = _show(kept.all, markdown=arguments.markdown)
    return 2 if failed else int(noticed)


def _measure_all(attacks: list[Attack], queue: str, how: Settings, kept: Kept, ends_s: float) -> bool:
    """Those that there is time for. False: one could not be measured; the others were."""
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    each_s = len(how.kinds) * how.slots * (how.seconds + 0.2)
    left, failed = list(attacks), False
    while left and time.monotonic() + each_s + _OVERHEAD_S < ends_s:
        attack = left[0]
        try:
            with stage(queue, how, left) as made:
                while left and time.monotonic() + each_s < ends_s:
                    attack = left.pop(0)
                    kept.add(Summary.of(made.measure(attack, progress.print), kept.commit))
                    progress.print(report.line(kept.all[-1]))
        except (OSError, RuntimeError) as error:  # what was measured before and what comes after is worth having
            failed = True
            print(f"tests/attack/run: {attack.name} over {queue}: {error}", file=sys.stderr)
            left = [one for one in left if one is not attack]
    return not failed


def _show(summaries: list[Summary], *, markdown: bool) -> bool:
    """Has a bystander noticed more than it may?"""
    if markdown:
        print(report.markdown(summaries, "own"))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=260)
        console.print(report.table(summaries))
        for summary in summaries:
            report.show_account(console, summary)
    noticed = [
        f"{one.attack} ({one.queue}, {who}: {verdict})"
        for one in summaries
        for who in one.figures
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
