"""Limits that are not the beds' own, on a machine that is slower than most (patience.py): pytest's, a lab's, and those
of a proxy of one's own (the fixtures of xts_pytest)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xts_lab import lab
from xts_socket import _dev_proxy

from beds.patience import SLOWER

_LAB_START_S = lab.START_TIMEOUT_S
_OWN_START_S = _dev_proxy._START_S


def of_labs() -> None:
    """Of this process: a lab has a time-out of its own, and knows no tests."""
    lab.START_TIMEOUT_S = _LAB_START_S * SLOWER


def of_own_proxies() -> None:
    """As of_labs()."""
    _dev_proxy._START_S = _OWN_START_S * SLOWER


def of_tests(config: pytest.Config) -> None:
    """Those in pyproject.toml or -o; --timeout counts as it is. To be called before plug-ins are configured. Processes
    of pytest-xdist have the first from their parent."""
    if config.getoption("timeout", None) is None and (limit := config.getini("timeout")):
        config.option.timeout = float(limit) * SLOWER
    if limit := config.getini("faulthandler_timeout"):
        config._inicache["faulthandler_timeout"] = str(float(limit) * SLOWER)  # pytest has no other way


def of_marked(items: Iterable[pytest.Item]) -> None:
    """Tests with a limit of their own."""
    for item in items if SLOWER > 1 else ():
        if mark := item.get_closest_marker("timeout"):
            kwargs = dict(mark.kwargs)
            limit = mark.args[0] if mark.args else kwargs.pop("timeout", 0)
            item.add_marker(pytest.mark.timeout(limit * SLOWER, *mark.args[1:], **kwargs), append=False)
