"""The fixture's object: a proxy, and what can be done to it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from xts_socket.testing import DevProxy, GivenProxy, dev, lose, under_interposer

_OTHER_TABLES = (
    "the tables of the fixture xts_tables are not used: pytest runs under `xts dev` or `xts run`, which started the"
    " proxy; give it the same with `xts dev --tables FILE`"
)
_GIVEN = "pytest runs under `xts dev` or `xts run`, whose proxy no test may stop: run pytest without it for this test"


@contextmanager
def of_process(tables: str | os.PathLike[str]) -> Iterator[DevProxy | GivenProxy]:
    """The process's proxy. It has these tables, unless another program has started it: then that is warned about."""
    if tables and under_interposer():
        warnings.warn(_OTHER_TABLES, RuntimeWarning, stacklevel=1)
        tables = ""
    with dev(tables) as proxy:
        yield proxy


class XtsProxy:
    """An offload proxy of this process's own, over shared memory.

    The faults are those that a device and the way to it can have. After a test the next one finds it whole: mend().
    Where pytest runs under `xts dev` or `xts run`, it is the proxy of that: a test that stops it is skipped.
    """

    def __init__(self, proxy: DevProxy | GivenProxy) -> None:
        self._proxy = proxy

    def _own(self) -> DevProxy:
        if isinstance(self._proxy, GivenProxy):
            pytest.skip(_GIVEN)
        return self._proxy

    @property
    def endpoint(self) -> str:
        """Where programs attach (XTS_ENDPOINT)."""
        return self._proxy.endpoint

    def environment(self, **extra: str) -> dict[str, str]:
        """os.environ for a program whose XTS sockets are to be this proxy's, with `extra`."""
        return self._proxy.environment(**extra)

    def log_text(self) -> str:
        """The warnings and errors that it has logged."""
        return self._proxy.log_text()

    def kill(self) -> None:
        """The device is gone: connections end (ECONNRESET), new sockets fail (ENETDOWN), until restart()."""
        self._own().kill()

    def restart(self) -> None:
        """It serves again, at the same endpoint, and knows nothing of before."""
        self._own().kill()
        self._own().start()

    def pause(self) -> None:
        """The device hangs: nothing is carried until resume(); after XTS_DEAD_MS (3 s) the library gives it up."""
        self._own().pause()

    def resume(self) -> None:
        self._own().resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """pause(), and at the end of the block resume()."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def lose(self, count: int = 1, share: float = 0.0) -> None:
        """The next `count` messages that this process sends on its queue are lost on the way, and of those after them
        this share. lose(0): none any more.

        This is loss between host and device, of messages (a connect, a send, a close), not of TCP segments, which are
        the kernel's. A queue is to lose nothing, so one lost message ends the attachment as soon as the proxy sees the
        gap, which is with the next message: open sockets end (ECONNRESET), and the next socket attaches again. Where no
        message follows, the library's sign of life is the next, within a second.
        """
        if count < 0 or not 0 <= share <= 1:
            raise ValueError(f"count is {count}, share is {share}: expected 0 or more, and a number from 0 to 1")
        lose(share, count)

    def mend(self) -> None:
        """No loss, no pause, and a proxy that serves."""
        lose()
        if isinstance(self._proxy, GivenProxy):
            return
        self._proxy.resume()
        if self._proxy.pid is None or self._proxy.ended() is not None:
            self.restart()
