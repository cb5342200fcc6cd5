"""The file from which the lines of a text came, if a program has put a file's text into one of its own.

`xts dev --tables FILE` and `xts-lab up --tables FILE` put FILE into the configuration that they write for the proxy.
Marks around it, like those of the C preprocessor, say where it came from, and the proxy uses them to report mistakes:

    # line 1 "FILE"
    ...
    # line
"""

from __future__ import annotations

import re

_MARK = re.compile(r'# line(?: 1 "(?P<file>[^"\n]+)")?\r?')


def marked(text: str, file: str) -> str:
    """The text of a file with marks around it, to be put on lines of its own; unmarked if the file's name cannot be
    written in a mark."""
    begin = f'# line 1 "{file}"'
    return f"{begin}\n{text}\n# line\n" if text and _MARK.fullmatch(begin) else text


def origin(text: str, file: str, line: int) -> tuple[str, int]:
    """The file and line from which a line (from 1) of the text came; `file` is the name of the text itself."""
    lines = text.split("\n")
    for above in range(line - 1, 0, -1):
        if mark := _MARK.fullmatch(lines[above - 1]):
            return (mark["file"], line - above) if mark["file"] else (file, line)
    return file, line
