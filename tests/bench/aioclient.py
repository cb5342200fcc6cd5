"""The application in asyncio: 64-byte requests on some connections at a time, with asyncio's streams or those of
`xts_socket.aio`, on asyncio's event loop (with XTS: our `EventLoop`, which is that one with a selector of ours) or
uvloop's. Run as a program; prints one line of JSON, as the native client does."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from typing import Any

from pyclient import REQUEST_BYTES, sample, window


class Window:
    """The time that counts: after the warm-up, for so long."""

    def __init__(self, seconds: float, warmup_s: float) -> None:
        self.begins = time.monotonic() + warmup_s
        self.ends = self.begins + seconds
        self.times_ns: list[int] = []


async def _requests(module: Any, address: tuple[str, int], within: Window) -> None:
    reader, writer = await module.open_connection(*address)
    try:
        writer.get_extra_info("socket").setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY
        count = 0
        while True:
            before = time.monotonic_ns()
            request = count.to_bytes(REQUEST_BYTES, "big")
            writer.write(request)
            if await reader.readexactly(REQUEST_BYTES) != request:
                raise SystemExit("wrong response")
            after = time.monotonic_ns()
            count += 1
            if after >= within.ends * 1e9:
                return
            if before >= within.begins * 1e9:
                within.times_ns.append(after - before)
    finally:
        writer.close()
        await writer.wait_closed()


async def _measure(module: Any, arguments: argparse.Namespace) -> dict[str, float | str]:
    within = Window(arguments.seconds, arguments.warmup)
    address = (arguments.address, arguments.port)
    tasks = [asyncio.create_task(_requests(module, address, within)) for _ in range(arguments.connections)]
    await asyncio.sleep(within.begins - time.monotonic())
    begin = sample()
    await asyncio.sleep(within.ends - time.monotonic())
    end = sample()
    await asyncio.gather(*tasks)
    times = sorted(within.times_ns)
    percentiles = {
        f"p{name}_us": times[int(share * (len(times) - 1))] / 1e3 for name, share in (("50", 0.5), ("99", 0.99))
    }
    return {"operations": len(times), **window(begin, end), **percentiles, "checked": "every byte"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], required=True)
    parser.add_argument("--xts", action="store_true", help="streams of xts_socket.aio")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--core", type=int, default=0)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    factory: Any = None
    if arguments.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    module: Any = asyncio
    if arguments.xts:
        from xts_socket import aio as module

        factory = factory or module.EventLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(_measure(module, arguments))))


if __name__ == "__main__":
    main()
