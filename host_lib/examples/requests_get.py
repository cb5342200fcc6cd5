"""Fetches URLs with requests over offloaded sockets, kept alive: python requests_get.py https://example.org/ [...]"""

import sys

import xts_socket
from xts_socket.adapters.requests import session

if len(sys.argv) < 2:
    sys.exit("usage: python requests_get.py URL [...]")
with session() as client:
    for url in sys.argv[1:]:
        answer = client.get(url, timeout=10)
        print(answer.status_code, len(answer.content), "bytes over", xts_socket.info().queue_kind)
