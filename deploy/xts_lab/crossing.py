"""The first message: attaches to $XTS_ENDPOINT as any application would, and reports when the proxy has
answered.

`python -m xts_lab.crossing` exits with 0 when the link is up, and with 1 and the reason on standard error
otherwise.
"""

from __future__ import annotations

import sys

import xts_socket


def main() -> int:
    """Makes a socket, which attaches; the exit status says whether that worked."""
    try:
        xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_STREAM).close()
    except OSError as error:
        print(f"cannot attach: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
