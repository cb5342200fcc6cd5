"""The archive of the container image: each file is what its name says, and names what is there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import oci_archive


def test_an_archive(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as made:
        info = tarfile.TarInfo("etc/hello")
        info.size = 5
        made.addfile(info, io.BytesIO(b"world"))
    output = tmp_path / "image.tar"
    oci_archive.make(layer, output, "localhost/x:1", "2026-01-01T00:00:00+00:00", {"User": "x"})
    with tarfile.open(output) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads(files.pop("index.json"))["manifests"]
    assert named["annotations"] == {"org.opencontainers.image.ref.name": "localhost/x:1"}
    for name, data in files.items():
        assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"

    def blob(description: dict[str, object]) -> bytes:
        data = files[f"blobs/{str(description['digest']).replace(':', '/')}"]
        assert len(data) == description["size"]
        return data

    manifest = json.loads(blob(named))
    config = json.loads(blob(manifest["config"]))
    (packed,) = manifest["layers"]
    assert gzip.decompress(blob(packed)) == layer.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"]
    assert config["config"] == {"User": "x"} and len(config["history"]) == 1 and config["os"] == "linux"
    assert len(files) == 3 and not list(tmp_path.glob("*.part"))


def test_the_same_twice(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    tarfile.open(layer, "w").close()
    made = []
    for name in ("a", "b"):
        oci_archive.make(layer, tmp_path / name, "t", "2026-01-01T00:00:00+00:00", {"User": "x"})
        with tarfile.open(tmp_path / name) as archive:
            made.append(archive.getnames())
    assert made[0] == made[1]
