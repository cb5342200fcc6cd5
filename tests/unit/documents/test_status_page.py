"""deploy/docs/status.md: each row of "What works" names tests, or a document whose blocks are run, that are there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from xts_docs import blocks, links, markdown

PAGE = markdown.TOP / "deploy" / "docs" / "status.md"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_TITLE = "| what works | shown by |"


def section(text: str) -> str:
    return text.partition("\n## What works\n")[2].partition("\n## ")[0]


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Both cells of each row of the section's tables."""
    for line in section(text).splitlines():
        if line.startswith("|") and line != _TITLE and not set(line) <= set("|- "):
            what, shown = (cell.strip() for cell in line.strip("|").split(" | "))
            yield what, shown


def fault(shown: str) -> str | None:
    """Why these links show nothing; None: each is there and would fail."""
    found = _LINK.findall(shown)
    if not found:
        return "no test"
    return next(filter(None, (_fault_of(label.strip("`"), target) for label, target in found)), None)


def _fault_of(label: str, target: str) -> str | None:
    if problem := links.fault(PAGE, target):
        return problem
    path = (PAGE.parent / target.partition("#")[0]).resolve()
    name, _, function = label.partition("::")
    if name != path.name:
        return f"{label} is the name of another file than {target}"
    if function and not re.search(rf"^(async )?def {re.escape(function)}\(", path.read_text(), re.MULTILINE):
        return f"{target} has no {function}"
    if path.suffix == ".md":
        return None if path in set(blocks.executed()) else f"no block of {target} is run"
    if path.suffix != ".py":
        return None if os.access(path, os.X_OK) else f"{target} is no command"
    is_test = path.is_relative_to(markdown.TOP / "tests") and re.search(r"def test_|\.TestCase\b", path.read_text())
    return None if is_test else f"{target} is no test"


def test_each_row_is_shown_by_a_test() -> None:
    found = list(rows(PAGE.read_text()))
    assert len(found) > 40
    assert not {what: problem for what, shown in found if (problem := fault(shown))}


def test_nothing_is_said_outside_of_the_rows() -> None:
    """A claim in the text would need no test."""
    text = [line for line in section(PAGE.read_text()).splitlines() if line and not line.startswith(("|", "### "))]
    assert len(text) == 2 and text[0].startswith("Each row names tests"), text
    assert section(PAGE.read_text()).count(_TITLE) == section(PAGE.read_text()).count("\n### ")


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("", "no test"),
        ("by hand", "no test"),
        ("[`test_none.py`](../../tests/unit/test_none.py)", "there is no"),
        ("[`test_config.py::test_none`](../../tests/unit/proxy/test_config.py)", "has no test_none"),
        ("[`test_other.py`](../../tests/unit/proxy/test_config.py)", "another file"),
        ("[`links.py`](../xts_docs/links.py)", "is no test"),
        ("[`LICENSE`](../../LICENSE)", "is no command"),
        ("[`CHANGELOG.md`](CHANGELOG.md)", "no block"),
    ],
)
def test_a_row_that_shows_nothing_is_refused(shown: str, why: str) -> None:
    assert why in (fault(shown) or "")


def test_a_document_whose_blocks_are_run_shows_something() -> None:
    assert fault("[`tutorial.md`](tutorial.md)") is None
