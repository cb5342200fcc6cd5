"""Runs CPython's own tests of asyncio with every event loop an `xts_socket.aio.EventLoop`: connections and servers made
by host and port are ours, sockets that the tests make themselves are the kernel's. Prints, as JSON, how many tests ran,
how many transports of ours they made, and the names of those that failed. Arguments: names of test modules."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import sys
import unittest
from typing import Any

from xts_socket import aio
from xts_socket.aio import _transport

made = 0


class Policy(asyncio.DefaultEventLoopPolicy):
    """asyncio.new_event_loop() makes ours."""

    _loop_factory = aio.EventLoop


def count_transports() -> None:
    before = _transport.Transport.__init__

    def counting(self: Any, *arguments: Any, **options: Any) -> None:
        global made  # noqa: PLW0603
        made += 1
        before(self, *arguments, **options)

    _transport.Transport.__init__ = counting  # type: ignore[method-assign]


def use_our_policy() -> None:
    asyncio.set_event_loop_policy(Policy())


def use_our_loop(module: Any) -> None:
    """Test cases for each kind of selector: one of them, with our loop."""
    module.setUpModule = use_our_policy  # each module ends by resetting the policy
    for name, case in list(vars(module).items()):
        if not isinstance(case, type) or not hasattr(case, "create_event_loop") or "Mixin" in name:
            continue
        if name in ("PollEventLoopTests", "SelectEventLoopTests"):
            setattr(module, name, None)
        elif name.startswith(("EPoll", "Select", "Selector")):
            case.create_event_loop = lambda _self: aio.EventLoop()  # type: ignore[attr-defined]


def main() -> None:
    asyncio.SelectorEventLoop = aio.EventLoop  # type: ignore[misc]  # as the tests name it
    count_transports()
    suite = unittest.TestSuite()
    for name in sys.argv[1:]:
        module = importlib.import_module(f"test.test_asyncio.{name}")
        use_our_loop(module)
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    output = io.StringIO()
    result = unittest.TextTestRunner(stream=output).run(suite)
    failed = {case.id().removeprefix("test.test_asyncio."): text for case, text in result.failures + result.errors}
    print(json.dumps({"run": result.testsRun, "made": made, "failed": failed}))


if __name__ == "__main__":
    main()
