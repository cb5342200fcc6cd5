"""A process that carries out parts of attacks: `python -m attack.part PLACE`.

Each line on its standard input is an attack's name and the number of a part, as JSON. It says "under way" when the
attack is, goes on until the next line comes, and prints what it did as JSON.
"""

from __future__ import annotations

import json
import resource
import select
import sys
from collections import Counter

from .attacks import find
from .scene import Place


class Script:
    """What a part is given: where it is, when to stop, and what to count."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.done: Counter[str] = Counter()
        self._told = False

    @property
    def stopped(self) -> bool:
        """The attack is over. Asking is a system call: ask once for a batch of messages."""
        return bool(select.select([sys.stdin], [], [], 0)[0])

    def size(self, count: int) -> int:
        """How many of something, of `count` in the whole attack."""
        return max(1, int(count * self.place.scale))

    def under_way(self) -> None:
        """From now on the bystander is measured. Harmless when repeated."""
        if not self._told:
            self._told = True
            print("under way", flush=True)

    def wait(self) -> None:
        """Returns when the attack is over."""
        self.under_way()
        select.select([sys.stdin], [], [])


def _raise_file_limit() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    place = Place.from_argument(sys.argv[1])
    _raise_file_limit()
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        attack, part = json.loads(line)
        script = Script(place)
        find(attack).parts[part].run(script)
        script.wait()
        sys.stdin.readline()
        print(json.dumps(script.done), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
