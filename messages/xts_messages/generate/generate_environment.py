"""Generates native/settings/environment_names.h and native/settings/environment_table.c from environment.py and
profiles.py."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

from xts_messages.settings.environment import OF_TESTS, OURS, VARIABLES, Kind, Variable
from xts_messages.settings.profiles import PROFILES, Profile

_FROM = (
    "/* Generated from xts_messages/settings/environment.py and profiles.py by `python -m xts_messages.generate`. */"
)


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
        f"#define XTS_PROFILE_COUNT {len(PROFILES)}",
        *_constants(),
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _list(values: tuple[str, ...]) -> str:
    """Strings one after the other, each terminated by a zero byte; an empty one ends the list."""
    return " ".join(f'{_text(value)[:-1]}\\0"' for value in values) or '""'


def _entry(variable: Variable) -> Iterator[str]:
    yield f"\t[XTS_ENV_{_short(variable)}] = {{"
    yield f"\t\t.name = {_text(variable.name)},"
    yield f"\t\t.kind = XTS_VARIABLE_{variable.kind.name},"
    yield f"\t\t.allowed = {_text(variable.allowed)},"
    yield f"\t\t.aliases = {_list(variable.aliases)},"
    yield f"\t\t.choices = {_list(variable.choices)},"
    yield f"\t\t.prefix = {_text(variable.prefix)},"
    yield f"\t\t.key = {_text(variable.key) if variable.key else 'NULL'},"
    yield f"\t\t.fallback = {_text('' if variable.default is None else str(variable.default))},"
    yield f"\t\t.minimum = {variable.minimum}u,"
    yield f"\t\t.maximum = {variable.maximum}u,"
    yield "\t},"


_EXAMPLE = """\
# xts.toml: settings of the programs of a host whose sockets are offloaded. Put it at /etc/xts/xts.toml, or name it by
# XTS_CONFIG. Generated from messages/xts_messages/settings/environment.py by `python -m xts_messages.generate`: every
# setting is here, with its default where it has one, as a comment.
#
# The environment goes before this file, and xts_configure() of a program before both. `xts config check FILE` finds its
# mistakes, and `xts config explain` shows what is in force and why. It has to belong to root or to the user, and
# nobody else may write it. A line is NAME = VALUE, with true, false, a decimal number, or a string on one line.
"""


def example_file() -> str:
    """The text of deploy/xts.toml."""
    lines = [_EXAMPLE]
    for line, meaning in settings():
        lines += textwrap.wrap(meaning, 100, initial_indent="# ", subsequent_indent="# ")
        lines += [f"#{line}", ""]
    return "\n".join(lines)


def settings() -> Iterator[tuple[str, str]]:
    """A line of xts.toml for each setting, with its default or an example, and what it means."""
    for variable in OURS:
        if not variable.key:
            continue
        is_switch = variable.kind is Kind.SWITCH
        meaning = variable.meaning.replace("1: ", "true: ", 1) if is_switch else variable.meaning
        allowed = "true or false" if is_switch else variable.allowed
        yield f"{variable.key} = {_toml(variable)}", f"{meaning} It is {allowed}. ({variable.name} in the environment.)"


def _toml(variable: Variable) -> str:
    """The default, or an example."""
    value = variable.default
    if variable.kind is Kind.SWITCH:
        return "true" if value else "false"
    if value is None:
        value = variable.choices[0] if variable.choices else variable.minimum or _EXAMPLES.get(variable.key, "")
    return str(value) if isinstance(value, int) else _text(value)


_EXAMPLES = {"rules": "/etc/xts/rules.conf", "application_id": "web"}


def _profile(profile: Profile) -> Iterator[str]:
    yield f"\t{{ .name = {_text(profile.name)},"
    yield "\t  .values = {"
    for name, value in profile.sets.items():
        yield f"\t\t[XTS_ENV_{name.removeprefix('XTS_')}] = {_text(value)},"
    yield "\t  } },"


def table() -> str:
    """The text of environment_table.c."""
    names = sorted(v.name for v in VARIABLES if v.name.startswith("XTS_") and not v.name.startswith(OF_TESTS))
    lines = [
        _FROM,
        '#include "settings/environment.h"',
        "",
        "const struct xts_variable_entry xts_variables[XTS_ENV_COUNT] = {",
        *(line for variable in OURS for line in _entry(variable)),
        "};",
        "",
        "const struct xts_profile_entry xts_profiles[XTS_PROFILE_COUNT] = {",
        *(line for profile in PROFILES for line in _profile(profile)),
        "};",
        "",
        "const char xts_variable_names[] =",
        *(f'\t"{name}\\0"' for name in names),
        "\t;",
    ]
    return "\n".join(lines) + "\n"
