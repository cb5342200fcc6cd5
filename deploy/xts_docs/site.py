"""What mkdocs calls while it builds the site (mkdocs.yml, `hooks`).

The site has the paths of the repository, so that a link between two files is right in both. Its pages are all
Markdown files where they live, those that reference.py makes, and, as they are, the other files that pages link to.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "deploy"))  # mkdocs runs this file as a module of its own

from mkdocs.structure.files import File, Files  # noqa: E402

from xts_docs import links, markdown, reference  # noqa: E402

_NOTE = re.compile(r"^\s*<!-- (?:blocks:|run|file:|not run:|printed).*?-->\n", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """At the foot of each page: of which version it is."""
    with (TOP / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    shown = subprocess.run(
        ["git", "log", "-1", "--format=%h of %cs"], cwd=TOP, capture_output=True, text=True, check=False
    )
    config.copyright = f"xts-offload {version}" + (f", commit {shown.stdout.strip()}" if shown.stdout else "")
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """The files of the site. Of what mkdocs has found itself only the theme's stay."""
    found = Files([one for one in files if not _is_ours(one)])
    named: dict[str, Path] = {}
    for path in markdown.documents():
        named[str(path.relative_to(TOP))] = path
        for _, line in markdown.prose(path):
            for target in links.targets(line):
                there = (path.parent / target.partition("#")[0]).resolve()
                if not re.match(r"^[a-z]+:", target) and there.is_file() and there.is_relative_to(TOP):
                    named[str(there.relative_to(TOP))] = there
    for name, path in named.items():
        found.append(File.generated(config, name, abs_src_path=str(path)))
    for name, make in reference.MAKERS.items():
        found.append(File.generated(config, links.GENERATED + name, content=make()))
    found.append(File.generated(config, "assets/site.css", abs_src_path=str(TOP / "deploy" / "xts_docs" / "site.css")))
    return found


def _is_ours(one: File) -> bool:
    return bool(one.abs_src_path) and Path(str(one.abs_src_path)).is_relative_to(TOP / "deploy" / "docs")


def on_page_markdown(text: str, **_: Any) -> str:
    """Without the comments that are for tests."""
    return _NOTE.sub("", text)
