"""Generates native/environment_names.h and native/environment_table.c from the declaration in environment.py."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .environment import OURS, Kind, Variable

_FROM = "/* Generated from messages/xts_messages/environment.py by `python -m xts_messages.generate`. Do not edit. */"


def _short(variable: Variable) -> str:
    return variable.name.removeprefix("XTS_")


def _text(value: str) -> str:
    return json.dumps(value)


def _constants() -> Iterator[str]:
    for variable in OURS:
        if variable.kind is Kind.PATH and variable.default is not None:
            yield f"#define XTS_ENV_DEFAULT_{_short(variable)} {_text(str(variable.default))}"
        if variable.kind is not Kind.NUMBER:
            continue
        limits = {"MIN": variable.minimum, "MAX": variable.maximum, "DEFAULT": variable.default}
        for what, value in limits.items():
            if value is not None:
                yield f"#define XTS_ENV_{what}_{_short(variable)} {value}u"


def header() -> str:
    """The text of environment_names.h."""
    lines = [
        _FROM,
        "#ifndef XTS_ENVIRONMENT_NAMES_H",
        "#define XTS_ENVIRONMENT_NAMES_H",
        "",
        "enum xts_variable {",
        *(f"\tXTS_ENV_{_short(variable)}," for variable in OURS),
        "\tXTS_ENV_COUNT",
        "};",
        "",
        *_constants(),
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _list(values: tuple[str, ...]) -> str:
    """Strings one after the other, each ended by a zero, and an empty one at the end."""
    return " ".join(f'{_text(value)[:-1]}\\0"' for value in values) or '""'


def _entry(variable: Variable) -> Iterator[str]:
    yield f"\t[XTS_ENV_{_short(variable)}] = {{"
    yield f"\t\t.name = {_text(variable.name)},"
    yield f"\t\t.kind = XTS_VARIABLE_{variable.kind.name},"
    yield f"\t\t.allowed = {_text(variable.allowed)},"
    yield f"\t\t.aliases = {_list(variable.aliases)},"
    yield f"\t\t.choices = {_list(variable.choices)},"
    yield f"\t\t.prefix = {_text(variable.prefix)},"
    yield f"\t\t.minimum = {variable.minimum}u,"
    yield f"\t\t.maximum = {variable.maximum}u,"
    yield "\t},"


def table() -> str:
    """The text of environment_table.c."""
    lines = [
        _FROM,
        '#include "environment.h"',
        "",
        "const struct xts_variable_entry xts_variables[XTS_ENV_COUNT] = {",
        *(line for variable in OURS for line in _entry(variable)),
        "};",
    ]
    return "\n".join(lines) + "\n"
