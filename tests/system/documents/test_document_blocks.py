"""The commands and programs in the documents, run as a reader would; xts_docs/blocks.py has the language of their
comments."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from beds.ready import readable
from xts_docs import blocks, markdown
from xts_docs.markdown import Block
from xts_lab.free_ports import free_port
from xts_lab.lab import Lab
from xts_lab.privilege import afxdp_unavailable, missing_privilege

TOP = markdown.TOP
DEADLINE_S = 60.0
#: The documents' port of a server on this machine: a free one takes its place.
PORT = "8000"


def _path_of_a_reader() -> str:
    """Without the environment: a page whose commands are in it has to say so."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(one for one in folders if one and not (Path(one) / "xts").exists())


class Reader:
    """Somebody who types what a document has into one shell, in a folder that looks like the checkout."""

    def __init__(self, folder: Path, lab: str) -> None:
        self.folder = folder
        self.blocks = 0
        self.printed = ""
        self.port = str(free_port())
        for entry in TOP.iterdir():
            if entry.name not in (".git", ".venv"):
                (folder / entry.name).symlink_to(entry)
        (folder / ".venv").symlink_to(sys.prefix)
        environment = {"PATH": _path_of_a_reader(), "XTS_LAB": lab}
        self.told, telling = os.pipe()
        self.process = subprocess.Popen(
            ["bash", "-e"],
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[telling],
            start_new_session=True,
            text=True,
        )
        self.telling = telling

    def shell(self, text: str, given: str = "") -> str:
        """Runs commands, which must succeed; returns what was printed. Programs in the background go on."""
        self.blocks += 1
        text, given = (what.replace(PORT, self.port) for what in (text, given))
        script, output, stdin = (self.folder / f".{name}-{self.blocks}" for name in ("block", "output", "input"))
        script.write_text(text)
        stdin.write_text(given)
        assert self.process.stdin
        names = " ".join(shlex.quote(str(path)) for path in (script, output))
        self.process.stdin.write(f"set -- {names} {shlex.quote(str(stdin))}\n")
        self.process.stdin.write(f'. "$1" >"$2" 2>&1 <"$3" {self.telling}>&-; echo >&{self.telling}\n')
        self.process.stdin.flush()
        done = self._finished()
        printed = output.read_text(errors="replace") if output.exists() else ""
        assert done, f"exit status {self.process.poll()}:\n{text}\n{printed}"
        return printed

    def _finished(self) -> bool:
        """Has the shell come to the end of a block? Not, when it has ended, or time is over."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if readable(self.told, 0.05):
                return bool(os.read(self.told, 1))
        return False

    def do(self, step: blocks.Step) -> None:
        """One block, and what its comment adds."""
        if step.before:
            self.shell(step.before)
        if step.verb == "file":
            self.shell(f"cat >{shlex.quote(step.argument)}", step.block.text)
        elif step.verb == "run":
            command = step.argument or {"python": ".venv/bin/python -", "sh": ""}[step.block.language]
            tell = "export XTS_VERBOSE=1\n" if step.offloading else ""
            text = f"{tell}{command or step.block.text}\nunset XTS_VERBOSE\n"
            printed = self.shell(text, step.block.text if command else "")
            assert step.prints in printed, f"{step.prints!r} is not in what was printed:\n{printed}"
            wrong = step.unproven(printed)
            assert not wrong, f"{wrong}:\n{printed}"
            self.printed = printed
        elif step.verb == "printed":
            assert blocks.was_printed(step.block.text, self.printed), f"the output is another one:\n{self.printed}"
        if step.after:
            self.shell(step.after)

    def end(self) -> None:
        """Ends the shell, and what still runs in its background."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)
        os.close(self.told)
        os.close(self.telling)


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    name = f"doc{os.getpid()}"
    made = Reader(folder, name)
    try:
        yield made
    finally:
        made.end()
        Lab(name).down()


def parameters() -> Iterator[object]:
    for path in blocks.executed():
        marks = [getattr(pytest.mark, name) for name in sorted(blocks.markers(path))]
        yield pytest.param(path, marks=marks, id=str(path.relative_to(TOP)))


@pytest.mark.parametrize("document", list(parameters()))
def test_blocks(document: Path, tmp_path: Path) -> None:
    wanted = blocks.markers(document)
    if "root" in wanted and (lacking := missing_privilege()):
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    if "afxdp" in wanted and (reason := afxdp_unavailable()):
        pytest.skip(reason)
    with reader(tmp_path) as somebody:
        for step in blocks.steps(document):
            try:
                somebody.do(step)
            except AssertionError as error:
                raise AssertionError(f"{document.relative_to(TOP)}:{step.block.line}: {error}") from None


@pytest.mark.parametrize("document", markdown.documents(), ids=lambda path: str(path.relative_to(TOP)))
def test_every_block_is_run_or_says_why_not(document: Path) -> None:
    blocks.steps(document)
    blocks.markers(document)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```sh\nls\n```\n", "neither run nor says why not"),
        ("<!-- maybe -->\n```sh\nls\n```\n", "none of run"),
        ("<!-- not run -->\n```sh\nls\n```\n", "none of run"),
        ("<!-- run -->\nand so\n```sh\nls\n```\n", "neither run nor says why not"),
        ("<!-- run\nunless: it rains -->\n```sh\nls\n```\n", "none of before"),
        ("```\nls\n```\n", "use text"),
        ("<!-- printed -->\n```text\nls\n```\n", "what did this print"),
    ],
)
def test_a_block_without_a_verdict_is_a_fault(text: str, problem: str, tmp_path: Path) -> None:
    document = tmp_path / "some.md"
    document.write_text(text)
    with pytest.raises(blocks.NoteError, match=problem):
        blocks.steps(document)


@pytest.mark.parametrize(
    ("rules", "comment", "problem"),
    [
        ("# all", "", ""),
        ("use os tcp_client *:8000", "", "1 sockets were left to the kernel"),
        ("use os tcp_client *:8000", "  # this one stays with the kernel", ""),
        ("# all", " --help >/dev/null; true", "0 of 1 commands"),
    ],
)
def test_a_block_proves_that_it_offloads(rules: str, comment: str, problem: str, tmp_path: Path) -> None:
    """A program whose sockets stay with the kernel prints the same."""
    document = tmp_path / "some.md"
    document.write_text(
        f"<!-- file: some.rules -->\n```rules\n{rules}\n```\n"
        "<!-- run\nprints: Directory listing\n"
        "before: python3 -m http.server 8000 >/dev/null 2>&1 & until curl -so /dev/null http://127.0.0.1:8000/; "
        "do sleep 0.1; done -->\n"
        f"```sh\n.venv/bin/xts dev --rules some.rules -- curl -s http://127.0.0.1:8000/{comment}\n```\n"
    )
    if "--help" in comment:
        text = document.read_text().replace("xts dev --rules some.rules -- ", "xts dev --help >/dev/null; ")
        document.write_text(text.replace(comment, ""))
    folder = tmp_path / "folder"
    folder.mkdir()
    with reader(folder) as somebody:
        steps = blocks.steps(document)
        somebody.do(steps[0])
        if not problem:
            somebody.do(steps[1])
            return
        with pytest.raises(AssertionError, match=problem):
            somebody.do(steps[1])


@pytest.mark.parametrize(
    ("text", "printed", "problem"),
    [
        ("xts dev -- a\nxts run -- b", "sockets: 1 offloaded (1 bytes sent, 0 bytes received); 0 not", "1 of 2"),
        ("xts dev --no-preload -- a", "through the proxy: 0 connections made, 0 accepted, 0 datagrams sent", "0 of 1"),
        ("xts dev --no-preload -- a", "through the proxy: 1 connection made, 0 accepted, 0 datagrams sent", ""),
        ("xts status", "", ""),
    ],
)
def test_what_counts_as_a_proof(text: str, printed: str, problem: str, tmp_path: Path) -> None:
    document = tmp_path / "some.md"
    document.write_text(f"<!-- run -->\n```sh\n{text}\n```\n")
    (step,) = blocks.steps(document)
    assert bool(step.unproven(printed)) == bool(problem) and problem in step.unproven(printed)


def test_blocks_run_in_order_and_share_a_shell(tmp_path: Path) -> None:
    document = tmp_path / "some.md"
    document.write_text(
        "<!-- run -->\n```sh\nGREETING=hello; mkdir here; cd here; sleep 100 &\n```\n"
        "<!-- file: words -->\n```sh\nworld\n```\n"
        "<!-- run: cat - words\nprints: hello -->\n```sh\nhello\n```\n"
        "<!-- run\nprints: hello world -->\n```sh\nkill %1; echo $GREETING $(cat words)\n```\n"
        "<!-- printed -->\n```text\nhello world\n```\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    with reader(folder) as somebody:
        for step in blocks.steps(document):
            somebody.do(step)
        with pytest.raises(AssertionError, match="another one"):
            somebody.do(blocks.step(Block(document, 1, "text", "hello\n", "printed")))
        with pytest.raises(AssertionError, match="exit status 3"):
            somebody.shell("exit 3")


@pytest.mark.parametrize(
    ("shown", "is_it"),
    [
        ("a\nb\nc", True),
        ("a\n…\nc", True),
        ("a\n…\nb\n…\nc", True),
        ("…\nc", True),
        ("a\n…", True),
        ("a\nc", False),
        ("a\n…\n.", False),
        ("b\nc", False),
        ("a\nb", False),
        ("a\n…\nc\nd", False),
    ],
)
def test_a_printed_block_is_the_whole_output_except_what_it_leaves_out(shown: str, is_it: bool) -> None:
    assert blocks.was_printed(f"{shown}\n", "a \nb\nc\n") is is_it
