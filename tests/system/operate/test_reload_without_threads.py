"""A reload needs a thread. Where there is none it is refused, with the reason, and the next one is as ever."""

from __future__ import annotations

import _thread
import asyncio
from pathlib import Path
from typing import NoReturn

import pytest
from beds.operated_proxy import running
from beds.process_limits import identity, no_more_processes
from xts_proxy.supervisor import reload
from xts_proxy.supervisor.reload import in_thread


def test_a_supervisor_that_may_start_no_thread(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        if identity(proxy.process.pid, "Uid") == 0:
            pytest.skip("the limit does not hold for root")
        with no_more_processes(proxy.process.pid):
            for _ in range(2):
                said = proxy.hang_up("refused")
                assert "no thread can be started" in said and "Traceback" not in said
        assert "in force" in proxy.hang_up("taken")


@pytest.mark.parametrize("how", ["refused", "never begins"])
def test_a_thread_that_does_not_begin(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that memory runs out for."""

    def start(*_: object) -> int:
        if how == "refused":
            raise RuntimeError("can't start new thread")
        return 1

    def never() -> NoReturn:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(_thread, "start_new_thread", start)
        patched.setattr(reload, "_BEGINS_S", 0.05)
        with pytest.raises(BlockingIOError, match="no thread can be started"):
            asyncio.run(in_thread(never))
    assert asyncio.run(in_thread(lambda: 7)) == 7
