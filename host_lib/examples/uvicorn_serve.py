"""Serves a page with uvicorn over offloaded sockets: python uvicorn_serve.py [port]

`uvicorn --loop xts_socket.aio:EventLoop app:app` does the same from the command line.
"""

import sys
from typing import Any

import uvicorn


async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"hello from uvicorn\n"})


port = int((sys.argv[1:] or ["8000"])[0])
uvicorn.Server(uvicorn.Config(app, "0.0.0.0", port, lifespan="off", loop="xts_socket.aio:EventLoop")).run()
