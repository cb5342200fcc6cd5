"""Mistakes in a file that was put into the configuration of a proxy are reported as in that file."""

from __future__ import annotations

import pytest
from xts_messages.settings import line_origin
from xts_messages.settings.config_mistakes import ConfigError
from xts_proxy.config.config import parse


def mistakes(tables: str, file: str = "mine.toml") -> list[str]:
    text = "\n".join(["[proxy]", "wrkers = 1", line_origin.marked(tables, file), "[policy]", "defalt = 1"])
    with pytest.raises(ConfigError) as caught:
        parse(text, "all")
    return [str(mistake).partition(": ")[0] for mistake in caught.value.mistakes]


def test_each_mistake_has_the_file_and_line_of_its_own() -> None:
    assert mistakes("[limits]\nconections = 4\n") == ["all:2:1", "mine.toml:2:1", "all:10:1"]
    assert mistakes("[limits]\r\nconections = 4") == ["all:2:1", "mine.toml:2:1", "all:9:1"]


def test_also_one_of_syntax() -> None:
    assert mistakes("[limits]\n\nconnections =\n") == ["mine.toml:3:14"]


def test_nothing_is_marked_that_cannot_be_read_again() -> None:
    assert line_origin.marked("", "mine.toml") == ""
    assert line_origin.marked("[limits]", 'a "quoted" name') == "[limits]"
    assert mistakes("[limits]\nconections = 4", 'a"b') == ["all:2:1", "all:4:1", "all:6:1"]
