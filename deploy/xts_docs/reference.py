"""The pages of the reference that are made from the sources: when the site is built, or before it and committed.

`PYTHONPATH=deploy python -m xts_docs.reference [--check]` writes those that are committed. With --check nothing is
written; the exit status is 1 when one differs.
"""

from __future__ import annotations

import ast
import socket as standard
import sys
import textwrap
from collections.abc import Callable, Iterator

from xts_agent.metric_catalogue import PARTS as PARTS_OF_AGENT
from xts_messages.generate import generated
from xts_messages.metrics import metric_list
from xts_messages.settings.environment import VARIABLES
from xts_proxy.metrics.metric_catalogue import PARTS

from . import commands, header, setting_tables
from .commands import Command
from .markdown import TOP

_PACKAGE = TOP / "host_lib" / "xts_socket"

# --- Python --------------------------------------------------------------------------------------------

#: What the page of the Python interface shows first, by topic; everything else of the package comes behind.
_TOPICS: dict[str, tuple[str, ...]] = {
    "Sockets": ("socket", "create_connection", "create_server", "fromfd", "dup", "close", "epoll"),
    "Offloading what exists": ("install", "uninstall", "offload", "reasons", "Reason"),
    "This process": ("info", "Info", "configure"),
    "TLS": ("Tls", "TlsConnection", "TlsError", "CertificateError", "ssl_context", "wrap_ssl"),
    "Protocols": ("ulps", "Offer", "LayerInfo", "UlpError", "Layer", "Multiplexer", "Pdu"),
}
_MODULES = ("aio", "trio", "anyio")

#: Lines of a terminal, which are longer than the page is wide (site.css).
_WRAPPED = "``` { .text .wrapped }"


def own_names() -> list[str]:
    """Public names of the package that the standard module does not have."""
    tree = ast.parse((_PACKAGE / "__init__.py").read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and isinstance(
            node.value, ast.List | ast.Tuple
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id.startswith("__all__") for one in targets):
                found |= {str(item.value) for item in node.value.elts if isinstance(item, ast.Constant)}
    ours = {"socket", "create_connection", "create_server", "fromfd", "dup", "close"}
    return sorted(name for name in found if name in ours or not hasattr(standard, name))


def python_page() -> str:
    """The Python interface, by mkdocstrings."""
    names = own_names()
    lines = [
        "# Python interface",
        "",
        "The package `xts_socket`, apart from the names that it has from the standard module `socket`.",
        "[PYTHON.md](../../../host_lib/PYTHON.md) explains how they belong together.",
        "",
    ]
    described: set[str] = set()
    for topic, wanted in _TOPICS.items():
        lines += [f"## {topic}", ""]
        for name in wanted:
            if name in names:
                described.add(name)
                lines += [f"::: xts_socket.{name}", ""]
    paper = [name for name in names if name.startswith("xts_")]
    lines += ["## Protocols by class", ""]
    for name in names:
        if name not in described and name not in paper and name[0].isupper() and not name.isupper():
            lines += [f"::: xts_socket.{name}", ""]
            described.add(name)
    lines += ["## The paper's calls", "", "As in [xts.h](xts_h.md), by number of the socket.", ""]
    for name in paper:
        lines += [f"::: xts_socket.{name}", ""]
    for module in _MODULES:
        lines += [f"## xts_socket.{module}", "", f"::: xts_socket.{module}", ""]
    return "\n".join(lines)


# --- C -------------------------------------------------------------------------------------------------


def header_page() -> str:
    """xts.h as text."""
    first, *rest = header.sections()
    lines = ["# xts.h", "", *first.text, "", "The header itself: [xts.h](../../../host_lib/native/xts.h).", ""]
    for section in rest:
        lines += [f"## {section.title[0].upper()}{section.title[1:]}", "", *(f"{text}\n" for text in section.text)]
        for entry in section.entries:
            if entry.names:
                lines += [f"### {entry.names[0]} {{ #{entry.names[0]} }}", ""]
            lines += ["```c", entry.declarations, "```", "", entry.text, ""]
    return "\n".join(lines)


# --- commands and configuration ------------------------------------------------------------------------


def commands_page() -> str:
    """All commands with their options."""
    lines = ["# Commands", "", "Each has a manual page: `man xts-run`.", ""]
    for command in commands.all_commands():
        lines += _command(command, 2)
    return "\n".join(lines)


def _command(command: Command, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {command.name}", "", command.description, "", _WRAPPED, command.synopsis, "```", "")
    shown = [*command.arguments, *command.options]
    if shown:
        yield from ("| option | |", "|---|---|")
        yield from (f"| `{option.names}` | {_cell(option.text)} |" for option in shown)
        yield ""
    for title, text in commands.sections_of(command.epilog):
        if title == "EXAMPLES":
            yield from (_WRAPPED, textwrap.dedent("\n".join(text)), "```", "")
        else:
            named = f"{title.capitalize()}: " if title != "NOTES" else ""
            yield from (named + _text(" ".join(text)), "")
    for verb in command.verbs:
        yield from _command(verb, level + 1)


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("\n", " ")


def configuration_page() -> str:
    """xts-proxy.toml and xts-agent.toml."""
    lines = ["# Configuration files", "", "## xts-proxy.toml", ""]
    for table in setting_tables.proxy_tables():
        lines += [f"### {table.name}", ""] if table.name else []
        lines += [table.meaning, ""]
        for key in table.keys:
            limits = f" ({key.legal})" if key.legal else ""
            lines += [f"**`{key.name} = {key.value}`**{limits}", "", key.meaning, ""]
    lines += ["## xts-agent.toml", "", "TOML, without tables. An option of the command overrides its key.", ""]
    lines += ["| key | default | may be | meaning |", "|---|---|---|---|"]
    for key in setting_tables.agent_keys():
        lines.append(f"| `{key.name}` | {f'`{key.value}`' if key.value else ''} | {key.legal} | {_cell(key.meaning)} |")
    return "\n".join(lines) + "\n"


# --- environment ---------------------------------------------------------------------------------------


def environment_page() -> str:
    """The variables that users may set, from the declaration that the code uses too."""
    lines = [
        "# Environment variables",
        "",
        "An empty value is the same as none. `xts env` lists them with what they are set to.",
        "",
    ]
    for variable in VARIABLES:
        if not variable.internal and not variable.owner:
            lines += [f"## {variable.name}", "", variable.meaning, "", f"- is: {_cell(variable.allowed)}"]
            lines += [f"- default: `{variable.default}`"] if variable.default is not None else []
            lines += [f"- else: `{'`, `'.join(variable.aliases)}`"] if variable.aliases else []
            lines += [f"- as an option: `{variable.option}`"] if variable.option else []
            lines += [f"- read by: {', '.join(reader.value for reader in variable.readers)}", ""]
    lines += ["## Variables of others", "", "| variable | whose | what for |", "|---|---|---|"]
    for variable in VARIABLES:
        if variable.owner:
            lines.append(f"| `{variable.name}` | {variable.owner} | {_cell(variable.meaning)} |")
    return "\n".join(lines) + "\n"


# --- metrics -------------------------------------------------------------------------------------------


def metrics_page() -> str:
    """The metrics of proxy and agent, with their HELP texts."""
    lines = [
        "# Metrics",
        "",
        "The proxy's key `proxy.metrics` and the agent's `metrics` say where they are served, in the text",
        "formats of Prometheus and OpenMetrics. A histogram is several series: its name with `_bucket`,",
        "`_sum` and `_count`. `xts-proxy --list-metrics` and `xts-agent --list-metrics` print the same, with",
        "`--json` for programs.",
    ]
    title = ""
    for row in (*metric_list.rows(PARTS), *metric_list.rows(PARTS_OF_AGENT)):
        if row["part"] != title:
            title = row["part"]
            lines += ["", f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        labels = ", ".join(f"`{name}`" for name in row["labels"])
        lines.append(f"| `{row['name']}` | {row['kind']} | {labels} | {_cell(row['meaning'])} |")
    return "\n".join(lines) + "\n"


#: Name below deploy/docs/reference/ -> what makes its text, when the site is built.
MAKERS: dict[str, Callable[[], str]] = {
    "python.md": python_page,
    "xts_h.md": header_page,
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "environment.md": environment_page,
}
#: Those that are committed, because other pages point to them.
FILES: dict[str, Callable[[], str]] = {"deploy/docs/reference/metrics.md": metrics_page}


if __name__ == "__main__":
    sys.exit(generated.main("xts_docs.reference", __doc__, FILES, sys.argv[1:]))
