"""`xts files`: the places of the files that come with the package: dissector, units, configuration, examples."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xts_messages.terminal.text_table import print_table

from ...native import FOLDER
from . import VERBS

_EPILOG = """\
examples:
  xts files
  wireshark -X lua_script:$(xts files xts.lua)
  sudo install -m 644 $(xts files systemd) /etc/systemd/system/
  python $(xts files urllib_get.py) http://127.0.0.1:8000/
"""

#: The content of each folder; in this order they are listed.
_FOLDERS = {
    "config": "configuration, with every key and its default",
    "systemd": "units and a user for systemd",
    "prometheus": "alert rules for Prometheus, with tests, and a dashboard for Grafana",
    "wireshark": "dissector for Wireshark and tshark",
    "examples": "example, in Python or C",
}


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "files",
        help=VERBS["files"],
        description="Print where the files are that come with the package: dissector, units, configuration, examples.",
        epilog=_EPILOG,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="only the paths of this file, or of files of this kind")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=run, endpoint=None)


def run(arguments: argparse.Namespace) -> int:
    found = [path for path in files() if arguments.name in (None, path.name, path.parent.name)]
    if not found:
        kinds = ", ".join(_FOLDERS)
        print(f"xts files: there is no {arguments.name}; kinds are {kinds}; `xts files` lists all", file=sys.stderr)
        return 1
    if arguments.json:
        listed = [{"name": path.name, "kind": path.parent.name, "path": str(path)} for path in found]
        print(json.dumps({"files": listed}, indent=2))
    elif arguments.name is not None:
        print(*found, sep="\n")
    else:
        rows = [(path.name, _FOLDERS[path.parent.name], str(path)) for path in found]
        print_table(("File", "What", "Where"), rows)
    return 0


def files() -> Iterator[Path]:
    """All of them: next to the native module, where the build has put them."""
    top = FOLDER / "files"
    for folder in _FOLDERS:
        yield from sorted(path for path in top.joinpath(folder).glob("*") if path.is_file())
