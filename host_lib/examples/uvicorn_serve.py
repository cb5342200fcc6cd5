"""Serves a page with uvicorn over offloaded sockets: python uvicorn_serve.py [port [identity]]

`uvicorn --loop xts_socket.aio:EventLoop app:app` does the same from the command line. With an identity, a certificate
and key of the proxy's by their name in its configuration, the proxy does TLS.
"""

import sys
from typing import Any

import uvicorn
from xts_socket import Tls, ssl_context


async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"hello from uvicorn\n"})


port, *identity = sys.argv[1:] or ["8000"]
options: dict[str, Any] = {"lifespan": "off", "loop": "xts_socket.aio:EventLoop"}
if identity:
    options["ssl_context_factory"] = lambda *_: ssl_context(Tls(identity=identity))
uvicorn.Server(uvicorn.Config(app, "0.0.0.0", int(port), **options)).run()
