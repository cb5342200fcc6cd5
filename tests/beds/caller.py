"""A process that makes calls on libxts.so as it is told, one at a time, while its scripted proxy goes on."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from xts_messages.wire import codec

from .one_process_proxy import PATIENCE_S, WINDOW, OneProcessProxy

CALLER = Path(__file__).resolve().parents[1] / "system" / "sockets" / "programs" / "caller.py"


class Caller:
    """A process that makes calls on libxts.so as it is told. Context manager."""

    def __init__(self, proxy: OneProcessProxy, library: str, **settings: str) -> None:
        self.proxy = proxy
        environment = {**os.environ, "XTS_ENDPOINT": str(proxy.path), **settings}
        self.process = subprocess.Popen(
            [sys.executable, str(CALLER), library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.selector.close()
        self.process.kill()
        with self.process:
            pass

    def start(self, name: str, *arguments: Any) -> None:
        """Begins a call."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        """What the call came to, while the proxy goes on: a number, data as hex, or the name of an errno."""
        self.proxy.until(lambda: bool(self.selector.select(0)), "the call does not return")
        return self._said()

    def unserved(self, name: str, *arguments: Any) -> Any:
        """The same, while the proxy takes no frame: of a call that does not wait for it."""
        self.start(name, *arguments)
        assert self.selector.select(PATIENCE_S), "the call waits"
        return self._said()

    def _said(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process died: {self.process.wait()}"
        return json.loads(line)

    def call(self, name: str, *arguments: Any) -> Any:
        self.start(name, *arguments)
        return self.result()

    def connected(self, credits: int = WINDOW, kind: str = "socket") -> tuple[int, codec.Frame]:
        """A connection, and the CONNECT that asked for it. The proxy's identifier is 0x77."""
        s = self.call(kind)
        assert isinstance(s, int), s
        self.start("connect", s)
        connect = self.proxy.expect("XTS_CMD_CONNECT")
        peer = codec.Endpoint.of("127.0.0.1", 80)
        self.proxy.send("XTS_REPLY_CONNECT_ACK", id=s, proxy_id=0x77, post_credits=credits, local=peer, peer=peer)
        assert self.result() == 0
        return s, connect
