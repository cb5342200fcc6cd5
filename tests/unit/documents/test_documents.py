"""The checks of the documents themselves: links, and plain English."""

from __future__ import annotations

import argparse
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from xts_docs import commands, header, links, man, markdown, names, prose, reference, roff, setting_tables, words
from xts_messages.settings.environment import VARIABLES
from xts_proxy.config.config import Proxy

RULES = prose.Rules(60, 80, 8, {"widgets?": "say something else", "of course": "leave it out"})


def faults_of(text: str) -> list[tuple[int, str]]:
    return list(prose.faults_of(list(enumerate(text.splitlines(), 1)), RULES))


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("A short line.\n\n" + "word " * 13, 3, "columns; at most 60"),
        ("Its widgets\nare many.", 1, "“widgets”: say something else"),
        ("It is, of\ncourse, there.", 1, "“of course”: leave it out"),
        ("One two three.\nOne two three four five\nsix seven eight nine ten.", 2, "a sentence of 10 words"),
        ("| one two three four five | six |\n| one two three four five six seven eight nine | |", 2, "of 9 words"),
        ("- one two three four five six\n  seven eight nine\n- ten", 1, "of 9 words"),
    ],
)
def test_prose_faults(text: str, line: int, fault: str) -> None:
    found = faults_of(text)
    assert [(number, said) for number, said in found if fault in said] and found[0][0] == line, found


#: What a reader stumbled over, and a sentence that says the same and has to pass.
STUMBLED = [
    ("This page is for who runs the proxy.", "This page is for people who run the proxy."),
    ("What is left goes to who reads next.", "What is left goes to the process that reads next."),
    ("Options are those of the device.", "Options are carried out by the device."),
    ("A socket of the kernel's is refused.", "A socket of the kernel's own stack is refused."),
    ("It takes one of the kernel's, as before.", "It takes one of the kernel's sockets, as before."),
    ("The CPU time is as of the last call.", "The CPU time is updated at each call."),
    ("The function is asked about each datagram.", "The function is called for each datagram."),
    ("EINVAL: a timeout that is none.", "EINVAL: an invalid timeout. There is none in the table."),
    ("It is fetched if need be.", "It is fetched if needed."),
    ("The rule holds for bind.", "The rule applies to bind. A process holds a lock."),
    ("The same holds after that.", "The same is true after that. It holds the same lock."),
    ("`xts run` says so of the program.", "`xts run` warns about the program, and says so."),
    ("sockets in being", "sockets that exist"),
    ("`poll()` and its like wait.", "`poll()` and similar functions wait. Programs like it."),
    ("It is opened a" + "new.", "It is opened again."),
]


@pytest.mark.parametrize(("stumbled", "plain"), STUMBLED)
def test_what_readers_stumbled_over_does_not_come_back(stumbled: str, plain: str) -> None:
    rules = prose.load()
    assert list(prose.faults_of([(1, stumbled)], rules)), stumbled
    assert list(prose.faults_of([(1, plain)], rules)) == []


def test_words_of_sources_are_parts_of_names_too() -> None:
    rules = [(re.compile(r"\b(?:widgets?|odd word)\b", re.IGNORECASE), "say what it is")]
    text = "int free_widgets; /* an\n * odd word */\nint widgetry, awidget;\n"
    assert list(words.faults(text, rules)) == [
        (1, "“widgets”: say what it is"),
        (2, "“odd word”: say what it is"),
    ]
    assert words.load()


def test_hosts_of_package_registries() -> None:
    hosts = words.load("hosts")
    for host in ("pypi" + ".org", "files.pythonhosted" + ".org", "deb.debian" + ".org", "ghcr" + ".io"):
        assert [number for number, _ in words.faults(f"text\nsee https://{host}/x\n", hosts)] == [2]
    assert not list(words.faults("registry.example packages.example example.org pypi", hosts))


@pytest.mark.parametrize(
    "text",
    [
        "`widgets` of code, and [text](widgets.md)",
        "One two three four five. One two three four five.",
        "- one two three four five\n- one two three four five",
        "| one two three four | one two three four five |",
        "https://example.org/" + "long" * 30,
    ],
)
def test_what_is_no_fault(text: str) -> None:
    assert faults_of(text) == []


def test_links(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, with `code`\n\n# Twice\n\n# Twice\n")
    here = tmp_path / "here.md"
    for target in ("there.md", "there.md#a-heading-with-code", "there.md#twice-1", "https://example.org", "#mine"):
        here.write_text("# Mine\n")
        assert links.fault(here, target, tmp_path) is None, target
    for target in ("elsewhere.md", "there.md#twice-2", "../outside.md", "#yours"):
        assert links.fault(here, target, tmp_path), target
    assert list(links.targets("`[no](link)` [a](b.md) ![c](d.svg) [e](f.md#g)")) == ["b.md", "d.svg", "f.md#g"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`xts_steer_foreign` counts them", "no source has xts_steer_foreign"),
        ("`xts_worker_none_*`", "no source has xts_worker_none_"),
        ("`XTS_NONE=1`", "no source has XTS_NONE"),
        ("<!-- not run: tests/unit/test_none.py runs it -->", "there is no tests/unit/test_none.py"),
        ("the folder `tests/none`", "there is no tests/none"),
        ("it is in `none.c`", "no folder has none.c"),
        ("`xts_rounds_total`, `xts_worker_*`, `XTSLOG_TENANT`, `XTS_ENDPOINT`, `some.h`, tests/unit/", ""),
        ("#include <none.h>", ""),
        ("`python host_lib/examples/NAME`, build/none, /tests/none, `app.py`", ""),
    ],
)
def test_what_is_named_exists(text: str, fault: str) -> None:
    words = names.words_of(["xts_rounds xts_worker_cpu tenant XTS_ENDPOINT"])
    found = list(names.faults(text, {"tests/unit", "tests/unit/some.h", "host_lib"}, words))
    assert found == ([(1, fault)] if fault else [])


def test_pages_of_the_reference_are_made() -> None:
    assert set(reference.MAKERS) == links.PAGES
    assert "XTS_ENDPOINT" in reference.environment_page()
    row = "| `xts_accepts_total` | counter | `worker` | Connections accepted by listeners. |"
    assert row in reference.metrics_page()
    for name, make in reference.FILES.items():
        assert (markdown.TOP / name).read_text() == make(), "run python -m xts_docs.reference"
    assert {"socket", "Tls", "xts_connect"} <= set(reference.own_names())


@pytest.mark.parametrize("script", ["deploy/docs/build", "deploy/docs/check", "deploy/format-c", "tests/coverage"])
def test_the_help_of_a_script_is_its_own(script: str) -> None:
    command = ["bash", str(markdown.TOP / script), "--help"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "Usage:" in printed and script in printed, printed


def test_names_in_c_of_parameters_and_items_are_those_of_the_header() -> None:
    there = set(re.findall(r"#define (XTS_\w+)", (markdown.TOP / "messages/native/ulp_wire.h").read_text()))
    named = set(re.findall(r"^\| `\w+`.*? \| `(XTS_\w+)` \|", (markdown.TOP / "messages/ULPS.md").read_text(), re.M))
    assert named <= there and {"XTS_LENGTH_PREFIXED_WIDTH", "XTS_TLS_SERVER_NAME", "XTS_TLS_INFO_ALPN"} <= named
    assert all(name in (markdown.TOP / "deploy/man/man7/xts-ulps.7").read_text() for name in named)


def test_anchors_are_those_of_the_headings_outside_of_code(tmp_path: Path) -> None:
    path = tmp_path / "some.md"
    path.write_text('# One, two & three\n\n```text\n# not one\n```\n<a id="mine"></a>\n')
    assert markdown.anchors(path) == {"one-two--three", "mine"}


def rows_without_a_table(text: str) -> list[int]:
    """Lines that look like rows, and of which a reader sees the bars: no heading is above them."""
    found, before = [], ""
    lines = [*text.splitlines(), ""]
    for number, (line, after) in enumerate(pairwise(lines), 1):
        if line.startswith("|") and not before.startswith("|") and not re.fullmatch(r"\|[-:| ]+\|", after):
            found.append(number)
        before = line
    return found


@pytest.mark.parametrize("path", markdown.documents(), ids=lambda path: str(path.relative_to(markdown.TOP)))
def test_every_row_is_in_a_table(path: Path) -> None:
    assert rows_without_a_table(path.read_text()) == []


def test_a_row_behind_a_blank_line_is_in_no_table() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert rows_without_a_table(table) == [] and rows_without_a_table(f"{table}\n| 3 | 4 |\n") == [5]


def test_every_example_is_in_the_index_and_in_a_test() -> None:
    index = (markdown.TOP / "deploy" / "docs" / "examples.md").read_text()
    tests = "".join(path.read_text() for path in (markdown.TOP / "tests").rglob("test_*.py"))
    for folder in ("host_lib/examples", "host_lib/native/examples", "dpu_proxy/examples"):
        for path in (markdown.TOP / folder).glob("*.*"):
            assert f"../{folder}/{path.name})" in index, f"{path.name} is not in examples.md"
            named = re.search(rf'"{path.stem}(?:{re.escape(path.suffix)})?"', tests)
            assert named, f"no test runs {path.name}"


def test_commands_of_the_manual() -> None:
    parser = argparse.ArgumentParser(prog="tool", description="Does it.", epilog="example:\n  tool do -n 3")
    verbs = parser.add_subparsers(metavar="VERB")
    verb = verbs.add_parser("do", help="do it 100 %% of the time")
    verb.add_argument("-n", "--number", type=int, default=1, help="how often (default: %(default)s)")
    verb.add_argument("file", nargs="?", metavar="FILE")
    found = commands.command(parser, "tool", "does it")
    assert found.synopsis == "tool VERB …"
    assert [one.name for one in found.verbs] == ["tool do"]
    (do,) = found.verbs
    assert do.synopsis == "tool do [--number NUMBER] [FILE]"
    assert do.options == [commands.Option("-n NUMBER, --number NUMBER", "how often (default: 1)")]
    assert do.summary == "do it 100 %% of the time"


HEADER = """\
/*
 * What all have in common.
 */

#ifndef X_H
#define X_H

struct msghdr;

/* --- making them ------------ */

/* About the section. */

/* Makes one: -1 and ENOMEM. */
#define X_FLAG 1u
int xts_make(int kind,
             unsigned flags);
int xts_close(int s);

struct xts_state {
	int a; /* one; two */
};
#pragma GCC visibility pop
"""


def test_declarations_of_the_header() -> None:
    first, section = header.sections(HEADER)
    assert first.text == ["What all have in common."]
    assert section.title == "making them"
    assert section.text == ["About the section."]
    make, close, state = section.entries
    assert make.names == ("xts_make",) and make.text == "Makes one: -1 and ENOMEM."
    assert make.declarations.startswith("#define X_FLAG 1u\nint xts_make(")
    assert close == header.Entry("int xts_close(int s);", ("xts_close",), "")
    assert not state.names and state.declarations.startswith("struct xts_state {")


def test_every_call_and_key_has_its_place() -> None:
    exported = set(re.findall(r"xts_\w+", (markdown.TOP / "host_lib" / "native" / "xts.h").read_text()))
    told = {name for section in header.sections() for entry in section.entries for name in entry.names}
    assert len(told) > 30 and told <= exported
    tables = {table.name: [key.name for key in table.keys] for table in setting_tables.proxy_tables()}
    assert tables["[proxy]"] == list(Proxy.__struct_fields__)
    assert "peer_mac" in [key.name for key in setting_tables.agent_keys()]


def test_the_page_of_each_file_has_each_key() -> None:
    """xts.toml(5) as those of agent and proxy."""
    keys = {
        man.settings_page(): [variable.key for variable in VARIABLES if variable.key],
        man.agent_file_page(): [key.name for key in setting_tables.agent_keys()],
        man.proxy_file_page(): [key.name for table in setting_tables.proxy_tables() for key in table.keys],
    }
    for page, listed in keys.items():
        assert len(listed) > 10
        assert [name for name in listed if not re.search(rf"^\.B {name}\b", page, re.MULTILINE)] == []


def test_rows_of_text_for_man() -> None:
    assert roff.inline("a `b-c` **d** [e](f.md)") == r"a \fBb\-c\fR \fBd\fR e"
    assert roff.inline("`*` or `a*b`") == r"\fB*\fR or \fBa*b\fR"
    assert roff.escape('.x\n\'y "z"') == "\\&.x\n\\(aqy \\(dqz\\(dq"
