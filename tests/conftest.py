"""What tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from proxy_process import ProxyProcess, running_proxy


@pytest.fixture(scope="session")
def xts_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy that serves shared memory, and XTS_ENDPOINT naming it: sockets of this process are its."""
    with running_proxy(tmp_path_factory.mktemp("xts")) as proxy:
        before = os.environ.get("XTS_ENDPOINT")
        os.environ["XTS_ENDPOINT"] = proxy.endpoint
        try:
            yield proxy
        finally:
            if before is None:
                del os.environ["XTS_ENDPOINT"]
            else:
                os.environ["XTS_ENDPOINT"] = before
