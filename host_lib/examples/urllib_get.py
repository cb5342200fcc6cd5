"""Fetches URLs with the standard library after install(): python urllib_get.py https://example.org/ [...]

XTS_RULES names a rule file; without one, connections to loopback stay with the kernel.
"""

import sys
import urllib.request

import xts_socket

if len(sys.argv) < 2:
    sys.exit("usage: python urllib_get.py URL [...]")
xts_socket.install()
for url in sys.argv[1:]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        print(
            answer.status, len(answer.read()), "bytes; offloaded so far:", xts_socket.reasons()[xts_socket.Reason.NONE]
        )
