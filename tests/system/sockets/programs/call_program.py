"""Scripts of socket calls that are run twice, on the kernel's sockets and on XTS sockets, and must go the same way.

Run as a program: `python call_program.py kernel|LIBRARY` prints a JSON object, script name -> trace; a trace is what
each call returned and its errno. TCP peers are the kernel's own in both runs. Both sides are called through their C
interface, so Python's socket module smooths nothing over.
"""

from __future__ import annotations

import sys
from pathlib import Path

from beds.calls import print_traces
from beds.scripts import scripts
from system.sockets.programs import (
    call_connecting,
    call_data,
    call_datagram_filters,
    call_datagram_messages,
    call_datagram_stamps,
    call_datagrams,
    call_ending,
    call_hints,
    call_options,
)

if "libasan" not in Path("/proc/self/maps").read_text():
    # ASan reads what it finds at an address before the kernel does, and ends a program whose address is bad.
    import system.sockets.programs.call_arguments
    import system.sockets.programs.call_message_arguments  # noqa: F401

#: Each has added its scripts when it was imported.
TOPICS = (
    *(call_connecting, call_data, call_ending, call_hints, call_options),
    *(call_datagrams, call_datagram_filters, call_datagram_messages, call_datagram_stamps),
)
SCRIPTS = scripts("calls")


def main() -> None:
    print_traces(SCRIPTS, sys.argv[1], sys.argv[2:] or SCRIPTS)


if __name__ == "__main__":
    main()
