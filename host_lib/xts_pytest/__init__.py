"""A pytest plug-in: tests with an offload proxy of their own, on any machine, without privilege or configuration.

    def test_fetch(xts_proxy):                      # XTS sockets of this process are this proxy's
        with xts_socket.create_connection(("127.0.0.1", port)) as s: ...

    @pytest.mark.xts_offloaded                      # the standard module's too, and all of them have to be
    def test_client(): ...

    @pytest.fixture(scope="session")
    def xts_tables(): return "tls.toml"             # its TLS identities and trust roots, in conftest.py

Faults are made on request: `xts_proxy.kill()`, `pause()`, `lose()` (proxy.py). The proxy is started for the first test
that asks for it, and the next test finds it whole again. pytest loads this module in every run of an environment that
has the package; so nothing of it is imported before a test asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .offloaded import Offloaded
    from .proxy import XtsProxy

__all__ = ["xts_proxy", "xts_tables"]

_MARKER = "xts_offloaded"
_MARKER_TEXT = (
    f"{_MARKER}(allow=()): every TCP socket that the test makes must be offloaded, and one at least; else it fails with"
    " the reason. allow: names of reasons that are all right (host_lib/REASONS.md)"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER_TEXT)


@pytest.fixture(scope="session")
def xts_tables() -> str | os.PathLike[str]:
    """Additional configuration of the proxy, such as TLS identities: its text, or the path of a file with it. A fixture
    of this name in conftest.py takes the place of this one, which has none."""
    return ""


@pytest.fixture(scope="session")
def _xts_session(xts_tables: str | os.PathLike[str]) -> Iterator[XtsProxy]:
    from .proxy import XtsProxy, of_process

    with of_process(xts_tables) as proxy:
        yield XtsProxy(proxy)


@pytest.fixture
def xts_proxy(_xts_session: XtsProxy) -> Iterator[XtsProxy]:
    """An offload proxy: XTS sockets made in this process are its. Its network is this machine's, loopback included."""
    yield _xts_session
    _xts_session.mend()


# --- the marker ------------------------------------------------------------------------------------------------------


def pytest_itemcollected(item: pytest.Item) -> None:
    """A marked test has the fixture, before those that it names itself."""
    if isinstance(item, pytest.Function) and item.get_closest_marker(_MARKER):
        item.fixturenames.insert(0, "_xts_offloaded")


@pytest.fixture
def _xts_offloaded(request: pytest.FixtureRequest) -> Iterator[None]:
    from .marker import allowed_reasons
    from .offloaded import Offloaded, under_interposer

    marker = request.node.get_closest_marker(_MARKER)
    try:
        allowed = allowed_reasons(marker.args, marker.kwargs)
    except ValueError as mistake:
        pytest.fail(str(mistake), pytrace=False)
    if not under_interposer():  # `xts dev -- pytest`, `xts run -- pytest`: there is a proxy
        request.getfixturevalue("xts_proxy")
    with Offloaded() as watched:
        request.node.stash[_WATCHED] = watched, allowed
        yield


_WATCHED: pytest.StashKey[tuple[Offloaded, frozenset[str]]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """What the marker asks for is looked at where the test can still fail."""
    result = yield
    watched, allowed = pyfuncitem.stash.get(_WATCHED, (None, frozenset()))
    if watched is not None and (problem := watched.problem(allowed)):
        pytest.fail(problem, pytrace=False)
    return result
