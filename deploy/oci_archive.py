"""Makes an OCI image of one layer out of a tar archive: the part of deploy/build-image that knows the format.

The format is a folder of files named by their SHA-256, packed (image-spec, "image layout"): the layer, a configuration,
a manifest that names both, and an index that names the manifest.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LABELS = "org.opencontainers.image."
CONFIG = {
    "User": "xts",
    "Env": ["PATH=/opt/xts/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE=1"],
    "Cmd": ["xts", "--help"],
}


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make(layer: Path, output: Path, tag: str, created: str, settings: dict[str, Any]) -> None:
    """Writes the archive. settings: of what runs in the image, in the terms of the image-spec ("User", "Cmd", …).
    OSError: a file cannot be read or written."""
    with tempfile.TemporaryDirectory(dir=output.parent) as folder, tarfile.open(f"{output}.part", "w") as archive:

        def add(name: str, data: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

        def blob(kind: str, content: Any) -> dict[str, Any]:
            data = json.dumps(content).encode()
            sha256 = hashlib.sha256(data).hexdigest()
            add(f"blobs/sha256/{sha256}", data)
            return {"mediaType": kind, "digest": f"sha256:{sha256}", "size": len(data)}

        packed = Path(folder) / "layer"
        with layer.open("rb") as source, packed.open("wb") as file:
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as target:
                shutil.copyfileobj(source, target, 1 << 20)
        packed_sha256 = digest(packed)
        archive.add(packed, f"blobs/sha256/{packed_sha256}")
        config = {
            "created": created,
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": settings,
            "history": [{"created": created, "created_by": "deploy/oci_archive.py"}],  # builders count them
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}"]},
        }
        kind = "application/vnd.oci.image."
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{kind}manifest.v1+json",
            "config": blob(f"{kind}config.v1+json", config),
            "layers": [
                {
                    "mediaType": f"{kind}layer.v1.tar+gzip",
                    "digest": f"sha256:{packed_sha256}",
                    "size": packed.stat().st_size,
                }
            ],
        }
        named = blob(f"{kind}manifest.v1+json", manifest) | {"annotations": {"org.opencontainers.image.ref.name": tag}}
        add("index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}).encode())
        add("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    Path(f"{output}.part").rename(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layer", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--created", required=True, help="a date of RFC 3339")
    parser.add_argument("--version", required=True, help="of what is in it")
    parser.add_argument("--revision", required=True, help="the commit it is made of")
    options = parser.parse_args()
    labels = {"title": "xts-offload", "version": options.version, "revision": options.revision}
    settings = CONFIG | {"Labels": {f"{LABELS}{name}": text for name, text in labels.items()}}
    make(options.layer, options.output, options.tag, options.created, settings)


if __name__ == "__main__":
    main()
