"""What documents say of limits, and of keys that a reload takes over, is what the code has."""

from __future__ import annotations

import re

from xts_docs import markdown
from xts_messages._native import lib
from xts_proxy.__main__ import EXAMPLES
from xts_proxy.config.config import RELOADABLE, Proxy
from xts_proxy.config.config_limits import Limits

PAGE = (markdown.TOP / "dpu_proxy" / "SECURITY.md").read_text()


def test_the_table_of_limits_has_all_with_their_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", PAGE, re.MULTILINE)
    limits = Limits()
    assert {key: int(value.replace(",", "")) for key, value in rows} == {
        key: getattr(limits, key) for key in Limits.__struct_fields__
    }
    proxy = Proxy()
    assert f"messages on their way ({proxy.frame_window} in each direction)" in PAGE
    assert f"processes behind a relay ({proxy.relayed_max})" in PAGE


def test_the_numbers_of_system_calls() -> None:
    workers = lib.xts_calls_count(lib.XTS_CALLS_OF_WORKERS)
    start = lib.xts_calls_count(lib.XTS_CALLS_OF_WORKERS | lib.XTS_CALLS_OF_START)
    assert f"| {workers}; until its threads run {start}; with parsers one more |" in PAGE
    assert lib.xts_calls_count(lib.XTS_CALLS_OF_WORKERS | lib.XTS_CALLS_OF_PARSERS) == workers + 1
    assert f"| none | {lib.xts_calls_count(lib.XTS_CALLS_OF_KEYS)} |" in PAGE
    assert f"on a list of {lib.xts_calls_count(lib.XTS_CALLS_OF_RELAY)}." in PAGE


def _named(text: str) -> set[str]:
    """The keys of [proxy] that the text names."""
    return {word for word in re.findall(r"\w+", text) if word in Proxy.__struct_fields__}


def test_the_keys_that_a_reload_takes_over() -> None:
    operate = (markdown.TOP / "deploy" / "docs" / "how-to" / "operate.md").read_text()
    section = operate.partition("## Change the configuration")[2].partition("## ")[0]
    assert _named(section.partition("Of `[proxy]` it takes over")[2].partition(".")[0]) == RELOADABLE
    header = (markdown.TOP / "deploy" / "xts-proxy.toml").read_text().partition("[proxy]\n")[0]
    assert _named(header.replace("#", " ").partition("of [proxy] the keys")[2].partition(".")[0]) == RELOADABLE
    assert _named(EXAMPLES.partition("and of [proxy]")[2].partition("kill -TERM")[0]) == RELOADABLE
