"""`xts build-flags`: the options of a C compiler for a program with libxts, with absolute paths.

`pkg-config --cflags --libs xts` prints the same where PKG_CONFIG_PATH is an absolute path. A relative one leads to a
RUNPATH that is relative too, and the program finds libxts.so from one folder only.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from pathlib import Path
from typing import Any

from . import VERBS

_EPILOG = """\
examples:
  cc -o fetch fetch.c $(xts build-flags)
  cc -c fetch.c $(xts build-flags --cflags)
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "build-flags",
        help=VERBS["build-flags"],
        description="Print the compiler's options for a C program that uses libxts.",
        epilog=_EPILOG,
    )
    parser.add_argument("--cflags", action="store_true", help="only the options for compiling")
    parser.add_argument("--libs", action="store_true", help="only the options for linking")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=run, endpoint=None)


def run(arguments: argparse.Namespace) -> int:
    include = Path(sysconfig.get_path("data"), "include").absolute()
    library = Path(sysconfig.get_path("data"), "lib").absolute()
    if not (include / "xts.h").exists():
        raise OSError(f"{include}/xts.h is not there: install the package again")
    cflags = [f"-I{include}"]
    libs = [f"-L{library}", "-lxts", f"-Wl,-rpath,{library}"]
    both = arguments.cflags == arguments.libs
    if arguments.json:
        print(json.dumps({"cflags": cflags, "libs": libs}))
    else:
        print(*(cflags if both or arguments.cflags else []), *(libs if both or arguments.libs else []))
    return 0
