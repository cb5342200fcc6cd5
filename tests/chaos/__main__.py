"""tests/chaos/run: everything at once, by a seed."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from beds.versions import version_of

from chaos.session import Wanted, run
from chaos.ways import WAYS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests/chaos/run",
        description="Disturbs agent, proxy, link and machine while programs run, and says what they should not have "
        "noticed. Needs root. What failed is run again by its seed.",
        epilog="example: tests/chaos/run --way afxdp --seconds 600",
    )
    ways = "; ".join(f"{way.name}: {way.says}" for way in WAYS.values())
    parser.add_argument("--way", choices=WAYS, default="shm", help=f"{ways} (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the plan (default: another one each time)")
    parser.add_argument("--seconds", type=float, default=120, help="how long (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="disturbances whose names have this")
    parser.add_argument(
        "--pause-ms", type=float, default=10, help="of programs, before the next request (default: %(default)s)"
    )
    parser.add_argument("--previous", metavar="COMMIT", help="proxy and agent become that version, too, and this again")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="xts-chaos-"))
    folder.chmod(0o755)
    print(f"seed {seed}; what programs say is in {folder}", flush=True)
    try:
        other = version_of(options.previous) if options.previous else None
        wanted = Wanted(options.way, seed, options.seconds, options.only, pause_s=options.pause_ms / 1000, other=other)
        outcome = run(wanted, folder, lambda line: print(line, flush=True))
    except ValueError as error:
        print(f"tests/chaos/run: {error}", file=sys.stderr)
        return 2
    for failure in outcome.failures:
        print(f"FAILED {failure}")
    again = f"; again: tests/chaos/run --way {options.way} --seed {seed}" if outcome.failures else ""
    again += f" --previous {options.previous}" if again and options.previous else ""
    print(
        f"{outcome.steps} steps, all on again after at most {outcome.slowest_s:.1f} s, "
        f"{len(outcome.failures)} failures{again}"
    )
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
