"""Writes the manual pages to `deploy/man`: `PYTHONPATH=deploy python -m xts_docs.man [--check]`.

Their sources: the commands' argparse parsers, the declarations and comments of xts.h, the configuration's declarations
and the commented example, RULES.md and ULPS.md. With --check nothing is written; the exit status is 1 when a page that
is committed differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from xts_messages.generate import generated
from xts_messages.generate.generate_environment import settings
from xts_messages.settings.environment import VARIABLES
from xts_messages.settings.profiles import PROFILES

from . import commands, header, roff, setting_tables
from .commands import Command
from .markdown import TOP

FOLDER = "deploy/man"
_USER, _FILES, _CALLS = "User Commands", "File Formats", "libxts"
#: Besides its verbs: what to read after a command's page.
_ALSO = {
    "xts": "xts\\-agent(1), xts\\-proxy(1), xts\\-lab(1), xts.toml(5), xts\\-rules(5), xts_socket(3)",
    "xts-agent": "xts(1), xts\\-agent.toml(5)",
    "xts-device-plugin": "xts\\-agent(1)",
    "xts-proxy": "xts(1), xts\\-proxy.toml(5)",
    "xts-trace": "xts(1), xts\\-top(1)",
    "xts-otlp": "xts\\-proxy(1), xts\\-agent(1)",
    "xts-lab": "xts(1), ip\\-netns(8)",
    "xts-bluefield": "xts\\-proxy(1), xts\\-agent(1), devlink\\-port(8), ovs\\-ofctl(8)",
}

#: Sections that come from epilogs stand in this order.
_ORDER = ("EXAMPLES", "NOTES", "EXIT STATUS")

# --- commands ------------------------------------------------------------------------------------------


def command_page(command: Command, parent: Command | None = None) -> str:
    """The page of a command, or of a verb, with the verbs below it."""
    lines = [*roff.head(command.page, "1", command.summary, _USER), ".SH SYNOPSIS"]
    described = [verb for verb in command.verbs if parent is not None]
    for one in [command, *described]:
        if one is command and described:
            continue
        name, rest = one.name, one.synopsis.removeprefix(one.name)
        lines += [f".B {roff.escape(name)}", f"{roff.escape(rest.strip())}" or "\\&", ".br"]
    lines.pop()
    lines += [".SH DESCRIPTION", *roff.paragraphs(command.description)]
    if command.verbs and parent is None:
        lines.append(".SH COMMANDS")
        for verb in command.verbs:
            lines += [".TP", f".BR {roff.escape(verb.page)} (1)", roff.inline(verb.summary)]
    for one in [command, *described]:
        lines += _options(one, f"OPTIONS OF {one.name.upper()}" if one is not command else "OPTIONS")
    parts: dict[str, list[str]] = {}
    for one in [command, *described]:
        for title, text in commands.sections_of(one.epilog):
            plain = title in ("NOTES", "EXIT STATUS")
            new = [line for line in text if plain or line not in parts.get(title, [])]
            parts.setdefault(title, []).extend(new)
    for title, text in sorted(parts.items(), key=lambda part: _ORDER.index(part[0]) if part[0] in _ORDER else -1):
        lines += [f".SH {title}", *(_text(text) if title in ("NOTES", "EXIT STATUS") else roff.example(text))]
    top = parent or command
    also = [f"{roff.escape(verb.page)}(1)" for verb in command.verbs] if parent is None else [f"{top.page}(1)"]
    rest = _ALSO[top.page] if parent is None else _ALSO[top.page].split(", ", 1)[-1]
    lines += [".SH SEE ALSO", ", ".join([*also, rest]).replace("--", "-")]
    return "\n".join(lines) + "\n"


def _text(lines: list[str]) -> Iterator[str]:
    yield from roff.paragraphs("\n".join(line.strip() for line in lines))


def _options(command: Command, title: str) -> Iterator[str]:
    if command.options or command.arguments:
        yield f".SH {title}"
    for option in [*command.arguments, *command.options]:
        yield ".TP"
        yield f".B {roff.escape(option.names)}"
        yield roff.inline(option.text) or "\\&"


# --- files ---------------------------------------------------------------------------------------------


def proxy_file_page() -> str:
    """xts-proxy.toml(5)."""
    lines = list(roff.head("xts-proxy.toml", "5", "configuration of the offload proxy", _FILES))
    for table in setting_tables.proxy_tables():
        lines.append(f'.SH "{roff.escape(table.name) or "DESCRIPTION"}"')
        lines += roff.paragraphs(table.meaning) if table.meaning else []
        for key in table.keys:
            lines += [".TP", f".B {roff.escape(f'{key.name} = {key.value}')}"]
            text = " ".join(key.meaning.split())
            lines.append(roff.inline(f"{text} ({key.legal})" if key.legal else text).strip() or "\\&")
    lines += [".SH SEE ALSO", "xts\\-proxy(1)"]
    return "\n".join(lines) + "\n"


def agent_file_page() -> str:
    """xts-agent.toml(5)."""
    lines = list(roff.head("xts-agent.toml", "5", "configuration of the agent of a host", _FILES))
    lines += [".SH DESCRIPTION", *roff.paragraphs("TOML, without tables. An option of xts-agent(1) overrides its key.")]
    lines.append(".SH KEYS")
    for key in setting_tables.agent_keys():
        shown = f"{key.name} = {key.value}" if key.value else key.name
        lines += [".TP", f".B {roff.escape(shown)}", roff.inline(f"{key.meaning} ({key.legal})")]
    lines += [".SH SEE ALSO", "xts\\-agent(1)"]
    return "\n".join(lines) + "\n"


_SETTINGS = """\
Settings of the programs of a host whose sockets are offloaded. The library reads `/etc/xts/xts.toml` when it is loaded,
or the file that XTS_CONFIG names (`/dev/null`: none). `xts config check FILE` finds the mistakes of a file.

A line is a name and a value: `true`, `false`, a decimal number, or a string on one line. This is a part of TOML. The
file has to belong to root or to the user, and nobody else may write it. A mistake in it is always an error.

The first of these that sets a value wins: xts_configure(3) in the program, the environment, the profile that the
environment names, this file, the profile that this file names, the default. `xts config explain` shows where each value
comes from. A program that is privileged for its caller ignores the environment and the file.
"""


def settings_page() -> str:
    """xts.toml(5)."""
    lines = list(roff.head("xts.toml", "5", "settings of programs whose sockets are offloaded", _FILES))
    lines += [".SH DESCRIPTION", *roff.paragraphs(_SETTINGS), ".SH SETTINGS"]
    for line, meaning in settings():
        lines += [".TP", f".B {roff.escape(line)}", roff.inline(meaning)]
    lines.append(".SH PROFILES")
    for profile in PROFILES:
        keys = {variable.name: variable.key for variable in VARIABLES}
        sets = ", ".join(f"{keys[name]} = {value}" for name, value in profile.sets.items())
        lines += [
            ".TP",
            f".B {roff.escape(profile.name)}",
            roff.inline(f"A program with it {profile.meaning} ({sets})."),
        ]
    lines += [".SH FILES", *roff.example(["/etc/xts/xts.toml"]), ".SH EXAMPLES"]
    lines += roff.example(['rules = "/etc/xts/rules.conf"', "strict = true", "spin_us = 20"])
    lines += [".SH SEE ALSO", "xts\\-config(1), xts\\-run(1), xts\\-rules(5), xts\\-environment(7), xts_configure(3)"]
    return "\n".join(lines) + "\n"


def rules_page() -> str:
    """xts-rules(5), from RULES.md."""
    head = roff.head("xts-rules", "5", "which TCP sockets of which program are offloaded", _FILES)
    return _page_of(TOP / "host_lib" / "RULES.md", head, "xts\\-run(1), xts(1)")


def ulps_page() -> str:
    """xts-ulps(7), from ULPS.md."""
    head = roff.head("xts-ulps", "7", "protocols that can be pushed onto a socket", _CALLS)
    return _page_of(TOP / "messages" / "ULPS.md", head, "xts(7), xts_ioctl(3), xts_ulp_tell(3)")


def _page_of(document: Path, head: Iterable[str], see_also: str) -> str:
    """The page that has the text of a document, without its heading and its comments."""
    text = re.sub(r"<!--.*?-->\n?", "", document.read_text(), flags=re.DOTALL).split("\n", 1)[1]
    return "\n".join([*head, ".SH DESCRIPTION", *_from_markdown(text), ".SH SEE ALSO", see_also]) + "\n"


def environment_page() -> str:
    """xts-environment(7)."""
    lines = list(roff.head("xts-environment", "7", "variables that programs of xts-offload read", "Miscellany"))
    lines += [".SH DESCRIPTION", *roff.paragraphs("An empty value is the same as none. `xts env` lists them.")]
    lines.append(".SH VARIABLES")
    for variable in VARIABLES:
        if not variable.internal and not variable.owner:
            default = f" Default: {variable.default}." if variable.default is not None else ""
            option = f" The option {variable.option} sets it." if variable.option else ""
            lines += [".TP", f".B {roff.escape(variable.name)}"]
            lines.append(roff.inline(f"{variable.meaning} A value is {variable.allowed}.{default}{option}"))
    lines += [".SH SEE ALSO", "xts\\-env(1), xts\\-run(1), xts.toml(5), xts(7)"]
    return "\n".join(lines) + "\n"


def _from_markdown(text: str) -> Iterator[str]:
    for index, part in enumerate(re.split(r"^```\w*\n?", text, flags=re.MULTILINE)):
        if index % 2:
            yield from roff.example(part.rstrip("\n").splitlines())
            continue
        for block in re.split(r"\n[ \t]*\n", part.strip()):
            if heading := re.match(r"^(#+) (.*)", block):
                yield f'.SH "{roff.escape(heading[2].upper())}"' if len(heading[1]) == 2 else f".SS {heading[2]}"
            elif block.startswith("|"):
                yield from _rows(block)
            elif block:
                yield from roff.paragraphs(re.sub(r"^\d+\. ", "- ", block, flags=re.MULTILINE))


def _rows(table: str) -> Iterator[str]:
    """A table as a list: the first cell names a row."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in table.splitlines()]
    titles = rows[0]
    for row in rows[2:]:
        named = [(title, cell) for title, cell in zip(titles[1:], row[1:], strict=False) if cell]
        cells = [f"{title}: {cell}" if title and len(named) > 1 else cell for title, cell in named]
        yield from (".TP", roff.inline(row[0]), roff.inline("; ".join(cells)) or "\\&")


# --- libxts --------------------------------------------------------------------------------------------


def call_pages() -> dict[str, str]:
    """A page for each function of xts.h, by its file's name."""
    found = {}
    sections = header.sections()
    for section in sections:
        around = [entry for entry in section.entries if not entry.names]
        for entry in section.entries:
            for name in entry.names:
                found[f"man3/{name}.3"] = _call_page(name, entry, section, around)
    return found


def _call_page(name: str, entry: header.Entry, section: header.Section, around: list[header.Entry]) -> str:
    bsd = name.removeprefix("xts_")
    text = entry.text or f"As `{bsd}`(2), on an XTS socket: the same arguments, results and errno."
    summary = _summary(text) if entry.text else f"{bsd}(2) for XTS sockets"
    lines = [*roff.head(name, "3", summary, _CALLS), ".SH SYNOPSIS", ".nf", "#include <xts.h>", ""]
    lines += [roff.escape(line.expandtabs(8)) or "\\&" for line in entry.declarations.splitlines()]
    about, parts = _parts(text)
    see = parts.pop("SEE", "")
    lines += [".fi", ".SH DESCRIPTION", *roff.paragraphs(about)]
    for title, part in parts.items():
        lines += [f".SH {title}", *roff.paragraphs(part)]
    if not section.title.startswith("the paper") and section.text:
        lines += [".SH NOTES", *(line for text in section.text for line in roff.paragraphs(text))]
    calls = sorted({other for one in section.entries for other in one.names} - {name})
    also = see.strip().rstrip(".").replace("()", "(3)") or ", ".join(f"{other}(3)" for other in calls)
    lines += [".SH SEE ALSO", roff.escape(f"xts(7), {' '.join(also.split())}")]
    return "\n".join(lines) + "\n"


#: What a comment of xts.h begins its last paragraphs with, and the heading it becomes.
_HEADINGS = {"Returns": '"RETURN VALUE"', "Errors": "ERRORS", "See": "SEE"}


def _parts(text: str) -> tuple[str, dict[str, str]]:
    """The description, and what follows "Returns:", "Errors:" and "See:", by heading."""
    about, *rest = re.split(r"^(Returns|Errors|See): ", text, flags=re.MULTILINE)
    return about, {_HEADINGS[name]: part for name, part in zip(rest[::2], rest[1::2], strict=True)}


def _summary(text: str) -> str:
    """The first sentence, or as much of it as is one thought and no longer than a line."""
    first = re.split(r"(?<=[.:;])\s", " ".join(text.split()))[0].rstrip(".:;")
    return first if len(first) <= 70 else first[:70].rpartition(", ")[0] or first[:70].rpartition(" ")[0]


def overview_page() -> str:
    """xts(7): what all calls have in common, and the calls by section."""
    first, *rest = header.sections()
    lines = [*roff.head("xts", "7", "offloaded TCP sockets, for C programs", _CALLS), ".SH DESCRIPTION"]
    for text in first.text:
        lines += roff.paragraphs(text)
    for section in rest:
        lines.append(f'.SH "{roff.escape(section.title.upper())}"')
        for text in section.text:
            lines += roff.paragraphs(text)
        for entry in section.entries:
            lines += roff.example(entry.declarations.splitlines())
            lines += roff.paragraphs(entry.text) if entry.text else []
    lines += [".SH SEE ALSO", "xts(1), xts\\-run(1), xts\\-ulps(7), xts_socket(3)"]
    return "\n".join(lines) + "\n"


# --- all of them ---------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Every page, by its path below deploy/man."""
    found = {
        "man5/xts-proxy.toml.5": proxy_file_page(),
        "man5/xts-agent.toml.5": agent_file_page(),
        "man5/xts-rules.5": rules_page(),
        "man5/xts.toml.5": settings_page(),
        "man7/xts.7": overview_page(),
        "man7/xts-environment.7": environment_page(),
        "man7/xts-ulps.7": ulps_page(),
    } | call_pages()
    for command in commands.all_commands():
        found[f"man1/{command.page}.1"] = command_page(command)
        for verb in command.verbs:
            found[f"man1/{verb.page}.1"] = command_page(verb, command)
    return found


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the pages; returns the exit status."""
    made = pages()
    outputs = {f"{FOLDER}/{name}": partial(made.__getitem__, name) for name in sorted(made)}
    stale = [path for path in (TOP / FOLDER).rglob("*.[0-9]") if str(path.relative_to(TOP / FOLDER)) not in made]
    for path in stale:
        print(f"{path.relative_to(TOP)} is of nothing that is there: remove it", file=sys.stderr)
    return generated.main("xts_docs.man", __doc__, outputs, argv) or bool(stale)


if __name__ == "__main__":
    sys.exit(main())
