"""What the supervisor repeats."""

from __future__ import annotations

import asyncio

import pytest
from xts_proxy.supervisor.periodic import Periodic


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_a_call_that_fails_is_not_the_last(error: Exception) -> None:
    async def run() -> list[int]:
        calls: list[int] = []
        told: list[object] = []
        enough = asyncio.Event()

        def call() -> None:
            calls.append(1)
            if len(calls) == 2:
                raise error
            if len(calls) == 4:
                task.stop()
                enough.set()

        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about["exception"]))
        task = Periodic(0.001, call)
        task.start()
        await asyncio.wait_for(enough.wait(), 10)
        await asyncio.sleep(0.01)
        assert told == [error]
        return calls

    assert len(asyncio.run(run())) == 4
