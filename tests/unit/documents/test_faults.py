"""tests/faults.md: each fault has the places that were looked at for its kind, and a test that exists."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "tests/faults.md"
COLUMNS = ["fault", "kind", "looked at", "test"]


class Row(NamedTuple):
    line: int
    fault: str
    kind: str
    places: str
    test: str


def rows(text: str) -> list[Row]:
    """All rows of all tables. A table has the columns of COLUMNS."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|") or set(line) <= set("|- "):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == COLUMNS:
            continue
        assert len(cells) == len(COLUMNS), f"line {number}: {len(cells)} cells, not {len(COLUMNS)}"
        found.append(Row(number, *cells))
    return found


def names(cell: str) -> list[str]:
    """What stands between backticks: paths, and tests as pytest names them."""
    return re.findall(r"`([^`]+)`", cell)


def missing_path(name: str) -> bool:
    return not list(ROOT.glob(name)) if "*" in name else not (ROOT / name).exists()


def missing_test(name: str) -> str | None:
    """Why this is not a test of the project: FILE, FILE::FUNCTION or FILE::CLASS::FUNCTION, with [ID] where it has one.

    An ID is looked for as text: a parameter's value, or the name of a program that the test runs.
    """
    path, *steps = name.split("::")
    file = ROOT / path
    if not path.startswith("tests/") or not file.is_file():
        return f"{path} is not a file of the tests"
    text = file.read_text()
    if "def test_" not in text:
        return f"{path} has no test"
    for step in steps:
        function, _, parameter = step.partition("[")
        if not re.search(rf"^\s*(async def|def|class) {re.escape(function)}\b", text, re.M):
            return f"{path} has no {function}"
        word = parameter.removesuffix("]")
        sources = [file, *(part for part in file.parent.glob("programs/*") if part.is_file())]
        if word and not any(word in source.read_text() for source in sources):
            return f"{path} has no parameter {word}"
    return None


def faults_of(row: Row) -> list[str]:
    """What is wrong with a row."""
    cells = zip(COLUMNS, row[1:], strict=True)
    wrong = [f"the cell {name!r} is empty" for name, cell in cells if not cell or cell == "-"]
    if row.test.startswith("open"):
        if not row.test.removeprefix("open").strip(" :."):
            wrong.append("open, and it does not say why")
        return wrong
    tests = names(row.test)
    if not tests:
        wrong.append("no test")
    wrong += [why for name in tests if (why := missing_test(name))]
    if row.places.startswith("open"):
        wrong.append("nothing was looked at for the same kind")
    places = [name for name in names(row.places) if re.fullmatch(r"[\w.*-]+(/[\w.*-]+)+/?", name)]
    wrong += [f"{place} does not exist" for place in places if missing_path(place)]
    return wrong


def test_each_fault_has_what_was_looked_at_and_a_test() -> None:
    found = rows(PAGE.read_text())
    assert len(found) > 80
    wrong = [f"{PAGE.name}:{row.line}: {why}" for row in found for why in faults_of(row)]
    assert not wrong, "\n".join(wrong)


def test_no_fault_is_there_twice() -> None:
    found = [row.fault for row in rows(PAGE.read_text())]
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("| a | b |  | `tests/unit/documents/test_faults.py` |", "is empty"),
        ("| a | b | c |  |", "is empty"),
        ("| a | b | c | by hand |", "no test"),
        ("| a | b | c | open |", "does not say why"),
        ("| a | b | open | `tests/unit/documents/test_faults.py` |", "nothing was looked at"),
        ("| a | b | c | `tests/unit/test_of_nothing.py` |", "not a file"),
        ("| a | b | c | `tests/unit/documents/test_faults.py::test_of_nothing` |", "has no test_of_nothing"),
        (
            f"| a | b | c | `tests/unit/documents/test_faults.py::test_no_fault_is_there_twice[{'x' * 9}]` |",
            "has no parameter",
        ),
        ("| a | b | `host_lib/native/none.c`: right | `tests/unit/documents/test_faults.py` |", "does not exist"),
    ],
)
def test_a_row_that_lacks_something(line: str, why: str) -> None:
    [row] = rows(line)
    assert any(why in fault for fault in faults_of(row))
