"""Serves a page with hypercorn over offloaded sockets: python hypercorn_serve.py [port]"""

import asyncio
import sys
from typing import Any

from hypercorn.asyncio import serve
from xts_socket import aio
from xts_socket.adapters.hypercorn import XtsConfig


async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"hello from hypercorn\n"})


config = XtsConfig()
config.bind = ["0.0.0.0:" + (sys.argv[1:] or ["8000"])[0]]
with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
    runner.run(serve(app, config))
