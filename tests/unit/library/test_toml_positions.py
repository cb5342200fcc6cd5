"""Places of keys and values in TOML texts, held against tomllib's own reading of them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from beds.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.settings.toml_positions import Path, Position, dotted, locate


def all_paths(value: Any, path: Path = ()) -> set[Path]:
    paths = {path} if path else set()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        paths |= all_paths(inner, (*path, name))
    return paths


EVERYTHING = """\
# comment with [brackets] = and "quotes"
top = 1   # after a value
  indented = "a # not a comment"
[a]
b = 'C:\\path'
"quoted key" = true
dotted.inner . deep = 2
[a.'x.y']
long = \"\"\"one
two = "three" \\\\
[four]\"\"\"\"
raw = '''
[no] = table'''
array = [ 1, # one
  [2, 3],
  {k = "v", "l" = [4]}, ]
date = 1979-05-27 07:32:00
[[list]]
x = 1
[[list]]
x = 2
[list.sub]
y = 3
[[list.deep]]
z = 1
[[list.deep]]
z = {}
[empty]
"""


def test_every_path_of_every_construct_is_found() -> None:
    assert set(locate(EVERYTHING)) == all_paths(tomllib.loads(EVERYTHING))


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("top",), (2, 1), (2, 7)),
        (("indented",), (3, 3), (3, 14)),
        (("a",), (4, 1), (4, 1)),
        (("a", "quoted key"), (6, 1), (6, 16)),
        (("a", "dotted", "inner", "deep"), (7, 1), (7, 23)),
        (("a", "x.y", "raw"), (12, 1), (12, 7)),
        (("a", "x.y", "array", 1, 1), (15, 7), (15, 7)),
        (("a", "x.y", "array", 2, "l", 0), (16, 20), (16, 20)),
        (("list",), (18, 1), (18, 1)),
        (("list", 1), (20, 1), (20, 1)),
        (("list", 1, "sub", "y"), (23, 1), (23, 5)),
        (("list", 1, "deep", 1, "z"), (27, 1), (27, 5)),
    ],
)
def test_positions_are_where_an_editor_shows_them(path: Path, key: tuple[int, int], value: tuple[int, int]) -> None:
    place = locate(EVERYTHING)[path]
    assert (place.key, place.value) == (Position(*key), Position(*value))


def test_carriage_returns_do_not_shift_lines() -> None:
    assert locate("a = 1\r\nb = 2\r\n")[("b",)].value == Position(2, 5)


def test_dotted_names_indexes_in_brackets() -> None:
    assert dotted(("policy", "rule", 2, "ports")) == "policy.rule[2].ports"


def toml_string(text: str) -> str:
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\\x7f' else c  # every other character stands for itself
        for c in text
    )
    return f'"{escaped}"'


def to_toml(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{toml_string(k)} = {to_toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(to_toml, value)) + "]"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case _:
            return toml_string(value)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(text, values, max_size=5))
def test_any_document_gives_the_paths_that_tomllib_gives(document: dict[str, Any]) -> None:
    source = "\n".join(f"{toml_string(key)} = {to_toml(value)} # {{[" for key, value in document.items())
    assert tomllib.loads(source) == document
    places = locate(source)
    assert set(places) == all_paths(document)
    lines = source.split("\n")
    for line, key in enumerate(document, start=1):
        place = places[(key,)]
        assert place.key == Position(line, 1)
        assert lines[line - 1][place.value.column - 1 :].startswith(to_toml(document[key]))


PIECES = [
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ",",
    ".",
    "#",
    "\n",
    " ",
    "\t",
    '"',
    "'",
    '"""',
    "'''",
    "\\",
    "a",
    "b",
    "1",
]
PIECES += [
    "a = ",
    "b.a = ",
    "\n[a]\n",
    "\n[[b]]\n",
    "\n[b.a]\n",
    '"\\""',
    "'x]'",
    "1979-05-27T07:32:00Z",
    "0x1F",
    "\r\n",
]


@examples(500)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_whatever_tomllib_accepts_is_walked_to_its_end(source: str) -> None:
    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError:
        return
    assert set(locate(source)) == all_paths(document)
