"""Takes pictures of what people see in a terminal: `deploy/docs/captures [NAME …]`. Needs tmux.

Each scene runs in terminals of 80 and 120 columns, and once without colours (NO_COLOR). build/captures gets two files
for each picture: NAME-COLUMNS.txt, and .ansi with its colours (`cat` shows it). Somebody looks at them: what is cut
off, wrapped in the wrong place, or says nothing. A scene that does not come to its end within its time is a failure.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from xts_messages.terminal.command_line import CommandLine

from .markdown import TOP

FOLDER = TOP / "build" / "captures"
ROWS = 50
DEADLINE_S = 120.0
_LOOK_S = 0.1
_servers = itertools.count()
#: What is printed when a command has ended.
_END = "-- the end, status "
#: A client that nobody reads from, one that asks and gets answers, and the server of both.
BUSY = """
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
def serve(connection):
    with connection:
        if connection.recv(5) == b"reads":
            while data := connection.recv(65536):
                connection.sendall(data)
        time.sleep(600)
def accept():
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
asks, stuck = (socket.create_connection(server.getsockname()) for _ in range(2))
asks.sendall(b"reads"), stuck.sendall(b"sleep")
stuck.setblocking(False)
end = time.monotonic() + 600
while time.monotonic() < end:
    asks.sendall(b"x" * 1000)
    asks.recv(65536)
    try:
        stuck.send(b"y" * 65536)
    except BlockingIOError:
        pass
    time.sleep(0.01)
"""


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: keys that are typed before it, the text (a pattern) that it waits for, and its name; "": none is
    taken."""

    name: str
    waits_for: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """A command, and its pictures in order. Without any there is one, of its end. `status`: that the command ends with;
    None: any. `busy`: it runs under `xts dev` next to a program with connections."""

    name: str
    command: str
    shots: tuple[Shot, ...] = ()
    status: int | None = 0
    busy: bool = False
    needs: str = ""
    environment: dict[str, str] = field(default_factory=dict)


_VIEWS = ("process", "queue", "tenant", "worker", "peer")
_TOP_PAGES = (
    Shot("top", r"Waits for"),
    *(Shot(f"top-{view}", rf"(?m)^\s*{view.capitalize()} ", ("g",)) for view in _VIEWS),
    Shot("top-network", r"(?i)routes", ("g", "n")),
    Shot("", r"Waits for", ("Escape",)),  # on its own: what follows it at once would be one key with it
    Shot("top-connection", r"why it waits[\s\S]*both ends", ("Enter",)),
    Shot("", r"Waits for", ("Escape",)),
    Shot("top-filter-open", r"field=value", ("/",)),
    Shot("top-filter", r"state=LISTEN", (*"state=LISTEN", "Enter")),
)
SCENES = (
    Scene("doctor", "xts doctor", status=None),
    Scene("dev", 'xts dev -v -- python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
          'c = socket.create_connection(s.getsockname()); c.sendall(b"x" * 1000); s.accept()[0].recv(1)\''),
    Scene("dev-none", "xts dev -v -- true"),
    Scene("status", "xts status", busy=True),
    Scene("status-verbose", "xts status -v", busy=True),
    Scene("status-processes", "xts status --processes", busy=True),
    Scene("proxy-status", "xts-proxy status --connections", busy=True),
    Scene("top", "xts top", _TOP_PAGES, busy=True),
    Scene("demo", "deploy/demo --queue shm --size 4 --rounds 1 --seconds 0.1", status=None),
    Scene("mistake", "xts top --by proces; xts status --pdi 3", status=2),
    Scene("help", "xts --help"),
    Scene("metrics", "xts-agent --list-metrics"),
    Scene("plan", "xts-bluefield plan --simulated deploy/xts-bluefield.toml"),
)  # fmt: skip
#: Columns, and what is added to names and to the environment.
VARIANTS: tuple[tuple[int, str, dict[str, str]], ...] = (
    (80, "80", {}),
    (120, "120", {}),
    (80, "80-no-colour", {"NO_COLOR": "1"}),
)


class SceneError(Exception):
    """A scene that did not come to its end; the text says what was seen."""


class Terminal:
    """A tmux server of its own, with one window in which a command runs."""

    def __init__(self, name: str, columns: int, rows: int, command: str, environment: dict[str, str]) -> None:
        self._socket = f"xts-captures-{os.getpid()}-{name}-{next(_servers)}"  # one that ends may still have its name
        given = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR", "COLUMNS")}
        self._environment = given | {"TERM": "xterm-256color"} | environment
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), command)
        self.tmux("set-option", "-g", "remain-on-exit", "on")

    def tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._socket, *arguments], env=self._environment, capture_output=True, text=True, check=True
        ).stdout

    def shown(self, *, colours: bool = False) -> str:
        """What is on the screen, and has been before."""
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []), "-S", "-2000")

    def wait_for(self, pattern: str) -> str:
        """The screen, when it shows this twice in a row and is the same: a picture that is still drawn is none."""
        deadline = time.monotonic() + DEADLINE_S
        before = ""
        while time.monotonic() < deadline:
            now = self.shown()
            if re.search(pattern, now) and re.search(pattern, before):
                return now
            before = now
            time.sleep(_LOOK_S)
        raise SceneError(f"{pattern!r} is not on the screen after {DEADLINE_S:.0f} s:\n{self.shown()}")

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], capture_output=True, check=False)


@contextmanager
def terminal(scene: Scene, columns: int, variant: str, environment: dict[str, str]) -> Iterator[Terminal]:
    told = f"status=$?; echo; echo '{_END}'$status"
    command = f"{scene.command}; {told}; sleep 600"
    if scene.busy:
        busy = f"python3 -c {shlex.quote(BUSY)} & sleep 1; {scene.command}; {told}; kill %1; sleep 600"
        command = f"xts dev -- bash -mc {shlex.quote(busy)}"
    made = Terminal(f"{scene.name}-{variant}", columns, ROWS, f"exec bash -c {shlex.quote(command)}", environment)
    try:
        yield made
    finally:
        made.close()


def take(scene: Scene, columns: int, variant: str, environment: dict[str, str], folder: Path) -> None:
    """All pictures of a scene, at one width. SceneError: it did not come to its end."""
    with terminal(scene, columns, variant, environment) as screen:
        for shot in scene.shots or (Shot(scene.name, re.escape(_END)),):
            for key in shot.keys:
                screen.tmux("send-keys", key)
                time.sleep(_LOOK_S)
            text = screen.wait_for(shot.waits_for)
            ended = re.search(rf"(?s)(.*?)\n*{re.escape(_END)}(\d+)\n*$", text)
            if ended and scene.status not in (None, int(ended[2])):
                raise SceneError(f"it has ended with status {ended[2]}:\n{text}")
            if not shot.name:
                continue
            path = folder / f"{shot.name}-{variant}"
            path.with_suffix(".txt").write_text((ended[1] if ended else text).rstrip() + "\n")
            path.with_suffix(".ansi").write_text(screen.shown(colours=True).partition(_END)[0].rstrip() + "\n")


def main(argv: list[str] | None = None) -> int:
    """Takes them; 1: a scene has failed."""
    parser = CommandLine(prog="deploy/docs/captures", description=__doc__.partition("\n")[0] if __doc__ else "")
    names = [scene.name for scene in SCENES]
    parser.add_argument("scene", nargs="*", metavar="NAME", help=f"only these: {', '.join(names)}")
    chosen = parser.parse_args(argv).scene
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"there is no scene {', '.join(unknown)}; there are {', '.join(names)}")
    if shutil.which("tmux") is None:
        print("deploy/docs/captures: tmux is not installed: apt install tmux", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = 0
    for scene in SCENES:
        for columns, variant, environment in VARIANTS if not chosen or scene.name in chosen else ():
            try:
                take(scene, columns, variant, environment, FOLDER)
            except (SceneError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{scene.name}, {variant}: {error}", file=sys.stderr)
    print(f"{FOLDER.relative_to(TOP)}: {len(list(FOLDER.glob('*.txt')))} pictures; {failed} scenes failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
