"""Checks what the documents name: `python -m xts_docs.names`. Each fault is a line FILE:LINE: TEXT.

A file of the repository must exist, also one of C that is named without its folder. A name that begins with xts_ or
XTS_ (a metric, a call, an environment variable, a field) must be in a source of the repository. What the list of
changes names may be gone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import markdown

_FILE = re.compile(r"(?<![\w./-])((?:bpf|deploy|dpu_proxy|host_lib|messages|tests)/[\w./-]*[\w-])(?![\w*/])")
_C_FILE = re.compile(r"(?<![\w./-])[a-z]\w*\.[ch]\b")
_NAME = re.compile(r"(?<![\w-])(?:XTSLOG|XTS|xts)_\w+(?:(?=[*…])|\b)")
#: What Prometheus puts behind the name of a metric.
_SERIES = re.compile(r"_(?:total|bucket|sum|count)$")
#: In examples: a file that the reader has, and folders that a command makes.
_PLACEHOLDER = re.compile(r"/[A-Z]+$|^build/")
CHANGES = markdown.TOP / "deploy" / "docs" / "CHANGELOG.md"


def listed(top: Path = markdown.TOP) -> list[str]:
    """The files of the repository, new ones too."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=top, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")[:-1]


def words_of(texts: list[str]) -> set[str]:
    """All words of the sources, in lower case."""
    return {word for text in texts for word in re.findall(r"\w+", text.lower())}


def is_known(name: str, words: set[str]) -> bool:
    """Is this name, or for `xts_tenant_*` one that begins so, in a source? `XTSLOG_USER` is the field `user`."""
    name = _SERIES.sub("", name.lower())
    if name.endswith("_"):
        return any(word.startswith(name) for word in words)
    return name in words or (name.startswith("xtslog_") and name.removeprefix("xtslog_") in words)


def faults(text: str, paths: set[str], words: set[str]) -> Iterator[tuple[int, str]]:
    """The faults of a document, each with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        for path in _FILE.findall(line):
            if path not in paths and not _PLACEHOLDER.search(path):
                yield number, f"there is no {path}"
        for name in [] if line.startswith("#include") else _C_FILE.findall(line):
            if not any(path.endswith(f"/{name}") for path in paths):
                yield number, f"no folder has {name}"
        for name in _NAME.findall(line):
            if not is_known(name, words):
                yield number, f"no source has {name}"


def main() -> int:
    """Prints the faults; 1 when there are any."""
    files = listed()
    folders = {str(parent) for name in files for parent in Path(name).parents}
    made = [name for name in files if not name.endswith(".md") and "/man/" not in name]
    sources = [(markdown.TOP / name).read_text(errors="ignore") for name in made if (markdown.TOP / name).is_file()]
    words = words_of(sources)
    count = 0
    for path in markdown.documents():
        if path == CHANGES:
            continue
        for number, text in faults(path.read_text(), {*files, *folders}, words):
            print(f"{path.relative_to(markdown.TOP)}:{number}: {text}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
