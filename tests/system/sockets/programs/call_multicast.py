"""Scripts about groups. They run in a network namespace of their own, with the interfaces of own_network.py.

`python call_multicast.py kernel|LIBRARY` prints what call_program.py prints.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from beds.calls import Calls
from beds.scripts import scripts
from system.sockets.programs import call_groups, call_membership

#: Each has added its scripts when it was imported.
TOPICS = (call_groups, call_membership)


def main() -> None:
    side = sys.argv[1]
    calls = Calls(None if side == "kernel" else side)
    traces: dict[str, Any] = {}
    for name, function in scripts("multicast").items():
        failure = None
        try:
            function(calls)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        traces[name] = calls.finish() + ([["failed", failure]] if failure else [])
    json.dump(traces, sys.stdout)


if __name__ == "__main__":
    main()
