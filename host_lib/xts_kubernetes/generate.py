"""Makes the classes of the messages in *.proto: `python -m xts_kubernetes.generate [--check]`.

With --check nothing is written; the exit status is 1 when a file that is committed differs. Needs grpcio-tools, of the
version that pyproject.toml names: another one writes other files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("device_plugin", "dra_plugin", "plugin_registration", "pod_resources")


def generate(folder: Path) -> list[Path]:
    """Writes the files of all messages into a folder. RuntimeError: a .proto has a mistake, which was printed."""
    from grpc_tools import protoc

    for name in NAMES:
        options = [f"--proto_path={HERE}", f"--python_out={folder}", f"--pyi_out={folder}"]
        if protoc.main(["protoc", *options, f"{name}.proto"]):
            raise RuntimeError(f"{name}.proto cannot be compiled")
    return sorted(folder.glob("*_pb2.py*"))


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        generate(HERE)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        differing = [
            path.name
            for path in generate(Path(folder))
            if not (HERE / path.name).exists() or (HERE / path.name).read_bytes() != path.read_bytes()
        ]
    for name in differing:
        print(f"{name} is out of date: python -m xts_kubernetes.generate", file=sys.stderr)
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
