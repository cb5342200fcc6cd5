"""Serves a page with hypercorn over offloaded sockets: python hypercorn_serve.py [port [identity]]

With an identity, a certificate and key of the proxy's by their name in its configuration, the proxy does TLS, and
clients have HTTP/2.
"""

import asyncio
import sys
from typing import Any

from hypercorn.asyncio import serve
from xts_socket import Tls, aio
from xts_socket.adapters.hypercorn import XtsConfig


async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"hello from hypercorn\n"})


port, *identity = sys.argv[1:] or ["8000"]
config = XtsConfig()
config.bind = ["0.0.0.0:" + port]
if identity:
    config.tls = Tls(identity=identity)
with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
    runner.run(serve(app, config))
