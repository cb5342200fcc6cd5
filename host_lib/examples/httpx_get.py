"""Fetches URLs with httpx over offloaded sockets: python httpx_get.py https://example.org/ [...]"""

import sys

import httpx
import xts_socket
from xts_socket.adapters.httpx import XtsTransport

if len(sys.argv) < 2:
    sys.exit("usage: python httpx_get.py URL [...]")
with httpx.Client(transport=XtsTransport()) as client:
    for url in sys.argv[1:]:
        answer = client.get(url)
        print(answer.status_code, len(answer.content), "bytes over", xts_socket.info().queue_kind)
