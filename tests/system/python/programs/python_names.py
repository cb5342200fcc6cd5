"""Looks up names in the way that the first argument says, and prints what came: see test_python_names.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import xts_socket


def tried(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except OSError as error:
        return type(error).__name__, error.errno


def addresses(module: Any, name: str) -> Any:
    rows = tried(module.getaddrinfo, name, 80, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    return sorted({row[4][0] for row in rows}) if isinstance(rows, list) else rows


def of_asyncio(name: str) -> Any:
    async def ask() -> Any:
        return await asyncio.get_running_loop().getaddrinfo(name, 80, type=socket.SOCK_STREAM)

    rows = tried(asyncio.run, ask())
    return sorted({row[4][0] for row in rows}) if isinstance(rows, list) else rows


def main(how: str, name: str, address: str) -> None:
    block: Any = contextlib.nullcontext()
    module: Any = socket
    if how in ("install", "uninstalled"):
        xts_socket.install()
    if how == "uninstalled":
        xts_socket.uninstall()
    if how == "xts_socket":
        module = xts_socket
    if how == "offload":
        block = xts_socket.offload()
    with block:
        print(
            json.dumps(
                {
                    "getaddrinfo": addresses(module, name),
                    "gethostbyname": tried(module.gethostbyname, name),
                    "getnameinfo": tried(module.getnameinfo, (address, 80), 0),
                    "asyncio": of_asyncio(name),
                }
            )
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
