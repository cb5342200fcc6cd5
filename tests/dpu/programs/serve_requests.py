"""In the machine: runs the commands that come as files in a folder which it shares with the machine outside, each in a
thread of its own, and writes what they have said next to them (beds/dpu_machine.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path


def carry_out(request: Path) -> None:
    asked = json.loads(request.read_text())
    try:
        done = subprocess.run(
            asked["command"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=asked["timeout_s"],
            check=False,
        )
        status, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, said = 124, late.output or b""
    except OSError as error:
        status, said = 127, str(error).encode()
    part = request.with_suffix(".part")
    part.write_text(json.dumps({"status": status, "said": said.decode(errors="replace")}))
    part.rename(request.with_suffix(".answer"))


def main() -> None:
    folder, known = Path(sys.argv[1]), set()
    (folder / "up").touch()
    while not (folder / "end").exists():
        for request in sorted(folder.glob("*.request")):
            if request not in known:
                known.add(request)
                threading.Thread(target=carry_out, args=(request,), daemon=True).start()
        time.sleep(0.05)


main()
