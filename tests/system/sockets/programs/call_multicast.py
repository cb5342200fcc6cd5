"""Scripts about groups. They run in a network namespace of their own, with the interfaces of multicast_namespace.py.

`python call_multicast.py kernel|LIBRARY` prints what call_program.py prints.
"""

from __future__ import annotations

import sys

from beds.calls import print_traces
from beds.scripts import scripts
from system.sockets.programs import call_groups, call_membership, call_path_mtu

#: Each has added its scripts when it was imported.
TOPICS = (call_groups, call_membership, call_path_mtu)


def main() -> None:
    found = scripts("multicast")
    print_traces(found, sys.argv[1], found)


if __name__ == "__main__":
    main()
