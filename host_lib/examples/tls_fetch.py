"""Fetches pages with TLS done in the proxy: python tls_fetch.py https://example.org/ [...]

This process has no keys, trust roots or certificates: the proxy does, and checks the server's.
"""

import sys

import httpx
from xts_socket.adapters.httpx import XtsTransport

if len(sys.argv) < 2:
    sys.exit("usage: python tls_fetch.py URL [...]")
with httpx.Client(transport=XtsTransport(tls=True)) as client:
    for url in sys.argv[1:]:
        answer = client.get(url)
        tls = answer.extensions["network_stream"].get_extra_info("ssl_object")
        print(answer.status_code, len(answer.content), "bytes over", tls.version(), tls.cipher()[0], tls.crypto)
