"""Fixtures of the whole suite: the lab, on both kinds of queue; and a proxy without a lab, which needs no root."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from beds import (
    examples,  # noqa: F401  (the profile of hypothesis)
    stretched_limits,
)
from beds.authority import Authority, tls_tables
from beds.children import share_import_path
from beds.lab import raise_or_skip
from beds.proxy_process import ProxyProcess, running_proxy
from beds.terminal import CONVENTIONS
from xts_lab.lab import Lab

share_import_path()
# What decides over tables and colours is for each test to say: pytest-xdist sets COLUMNS in its workers.
for convention in CONVENTIONS:
    if convention != "TERM":
        os.environ.pop(convention, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in all that a script has a shell run in the background: the programs that tests start would heed no Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    stretched_limits.of_labs()
    stretched_limits.of_own_proxies()
    stretched_limits.of_tests(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    stretched_limits.of_marked(items)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: Python need not look through it whenever it collects garbage, and tests
    that ask for that wait less."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, whatever tests before have made of it in this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("shm", marks=[pytest.mark.root]),
        pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp]),
    ],
)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab with agent and proxy running, once for each kind of queue; shared by all tests of the run."""
    raised = raise_or_skip(request.param)
    try:
        yield raised
    finally:
        complaints = raised.down()
    assert not complaints, complaints


@pytest.fixture(scope="session")
def xts_authority() -> Authority:
    """Whom the proxy of `xts_endpoint` trusts; its identity "localhost" is from there."""
    return Authority()


@pytest.fixture(scope="session")
def xts_endpoint(tmp_path_factory: pytest.TempPathFactory, xts_authority: Authority) -> Iterator[ProxyProcess]:
    """A proxy that serves shared memory, and XTS_ENDPOINT naming it: sockets of this process are its.

    The library reads the environment once, when it is loaded: it is told here, once too. No test may make an XTS socket
    in this process with another endpoint.
    """
    from xts_socket import configure

    folder = tmp_path_factory.mktemp("xts")
    protocols = '[ulp]\noptional = ["grpc", "mpa"]\n'
    with running_proxy(folder, protocols + tls_tables(folder, xts_authority)) as proxy:
        before = os.environ.get("XTS_ENDPOINT")
        os.environ["XTS_ENDPOINT"] = proxy.endpoint
        configure(endpoint=proxy.endpoint)
        try:
            yield proxy
        finally:
            if before is None:
                del os.environ["XTS_ENDPOINT"]
            else:
                os.environ["XTS_ENDPOINT"] = before
