"""The command: `./tests/attack/run`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from xts_messages.standard_output import ends_with_reader
from xts_messages.version import __version__

from . import report
from .attacks import ATTACKS
from .measure import Result, Settings, run


@ends_with_reader
def main() -> int:
    """Exit status: 0, all held; 1, a bystander noticed more than it may; 2, it could not be measured."""
    names = [attack.name for attack in ATTACKS]
    parser = argparse.ArgumentParser(
        prog="tests/attack/run",
        description="Attacks a proxy and prints what bystanders on other queues of the same worker notice, one of the "
        "attacker's own tenant and one of another: 64-byte requests at a steady pace, without the attack, with it, and "
        "with it on another proxy of the same core, in turns; and the account of each tenant.",
        epilog="example: ./tests/attack/run --only lingering-closes --queue shm --rounds 3\n\nattacks:\n"
        + "".join(f"  {attack.name:<22} {attack.tries}\n" for attack in ATTACKS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="an attack; may be repeated")
    parser.add_argument("--queue", action="append", choices=("afxdp", "shm", "shm-loopback"), help="may be repeated")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each attack (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="of each phase (default 2)")
    parser.add_argument("--no-control", action="store_true", help="attack no other proxy of the same core")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is taken down on the way out
    queues = arguments.queue or (["afxdp", "shm"] if os.geteuid() == 0 else ["shm-loopback"])
    progress = Console(stderr=True, highlight=False)
    settings = Settings(arguments.rounds, arguments.seconds, control=not arguments.no_control)
    results: list[Result] = []
    failed = False
    wanted = [attack for attack in ATTACKS if not arguments.only or attack.name in arguments.only]
    for attack, queue in [(attack, queue) for attack in wanted for queue in queues if queue in attack.queues]:
        try:
            results.append(run(attack, queue, settings, progress.print))
        except (OSError, RuntimeError) as error:  # what was measured before and what comes after is worth having
            failed = True
            print(f"tests/attack/run: {attack.name} over {queue}: {error}", file=sys.stderr)
            continue
        progress.print(report.line(results[-1]))
        if arguments.json:
            arguments.json.write_text(json.dumps([report.as_json(result) for result in results], indent=1) + "\n")
    console = Console() if sys.stdout.isatty() else Console(width=180)
    console.print(report.table(results))
    for result in results:
        report.show_account(console, result)
    noticed = [f"{result.attack} ({result.queue}, {who})" for result in results for who in report.noticed_by(result)]
    if noticed:
        print(f"a bystander noticed: {', '.join(noticed)}")
    return 2 if failed else 1 if noticed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
