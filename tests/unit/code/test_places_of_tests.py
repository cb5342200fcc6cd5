"""Where things are in tests/: next to a test there are only tests and fixtures; what a test starts is in a folder
`programs`, what several tests are made with in beds, and what results are compared with in oracles."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
#: Commands, whose modules are next to their tests, and the packages that all tests import.
OTHERS = {"bench", "stress", "attack", "chaos", "fuzz", "beds", "oracles", "suite"}


def test_programs_of_tests_have_folders_of_their_own() -> None:
    for path in TESTS.rglob("*.py"):
        folders = path.relative_to(TESTS).parts[:-1]
        if not folders or folders[0] in OTHERS or "programs" in folders[1:]:  # tests/programs is a topic
            continue
        assert path.name.startswith("test_") or path.name in ("conftest.py", "__init__.py"), path


def test_programs_have_tests_next_to_them() -> None:
    found = [path for path in TESTS.rglob("programs") if path.is_dir() and path.parent != TESTS]
    assert len(found) > 10
    for folder in found:
        assert any(folder.parent.glob("test_*.py")), folder


def test_no_two_tests_have_one_name() -> None:
    """pytest imports them by their names alone: with two of a name, none of the second's tests runs where the first is
    read before it. Runs of a single folder do not notice."""
    seen: dict[str, Path] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        assert seen.setdefault(path.name, path) == path, f"{path} is called as {seen[path.name]} is"
