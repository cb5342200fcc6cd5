"""curl and wget on the host, fetching from nginx outside: plain and TLS, IPv6, resume, many at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest
from beds.real_programs import NET4, NET6, Bed, Site, need, nginx

pytestmark = [pytest.mark.root]

PARALLEL = 100


@pytest.fixture(autouse=True)
def server(bed: Bed, site: Site) -> Iterator[None]:
    """nginx outside, on the kernel."""
    command, _ = nginx(bed, "net", site, name="nginx")
    with bed.program("net", *command, name="nginx") as process:
        bed.wait_for_port("net", NET4, 443, process)
        yield


def urls(name: str) -> list[str]:
    return [f"{scheme}://{host}/{name}" for scheme in ("http", "https") for host in (NET4, f"[{NET6}]")]


def test_curl_fetches_and_the_hash_is_right(bed: Bed, site: Site) -> None:
    need("curl")
    for number, url in enumerate(urls("large.bin")):
        out = bed.folder / f"out{number}"
        bed.run("host", "curl", "-sS", "--fail", "--cacert", str(site.certificate), "-o", str(out), url)
        assert hashlib.sha256(out.read_bytes()).hexdigest() == site.sha256, url


def test_curl_resumes(bed: Bed, site: Site) -> None:
    need("curl")
    out = bed.folder / "out"
    out.write_bytes(site.large.read_bytes()[:5_000_001])
    bed.run("host", "curl", "-sS", "--fail", "-C", "-", "-o", str(out), f"http://{NET4}/large.bin")
    assert hashlib.sha256(out.read_bytes()).hexdigest() == site.sha256


def test_curl_fetches_a_hundred_at_once(bed: Bed, site: Site) -> None:
    need("curl")
    fetches: list[str] = []
    for number in range(PARALLEL):
        fetches += ["-o", str(bed.folder / f"out{number}"), f"http://{NET4}/index.html?{number}"]
    bed.run(
        "host",
        "curl",
        "-sS",
        "--fail",
        "--no-progress-meter",
        "--parallel",
        "--parallel-immediate",
        "--parallel-max",
        str(PARALLEL),
        *fetches,
    )
    expected = (site.root / "index.html").read_bytes()
    assert all((bed.folder / f"out{number}").read_bytes() == expected for number in range(PARALLEL))


def test_curl_says_what_the_kernel_would_say(bed: Bed) -> None:
    need("curl")
    output = bed.run("host", "curl", "-sS", f"http://{NET4}:9/", check=False)
    assert re.search(r"curl: \(7\) .* after \d+ ms", output), output


def test_wget_fetches_and_resumes(bed: Bed, site: Site) -> None:
    need("wget")
    for number, url in enumerate(urls("large.bin")):
        out = bed.folder / f"wget{number}"
        out.write_bytes(site.large.read_bytes()[:1_000_003])
        bed.run("host", "wget", "-q", "--ca-certificate", str(site.certificate), "-c", "-O", str(out), url)
        assert hashlib.sha256(out.read_bytes()).hexdigest() == site.sha256, url


@pytest.mark.long
def test_curl_fetches_a_gigabyte(bed: Bed, site: Site) -> None:
    need("curl")
    size = 1 << 30
    huge = site.root / "huge.bin"
    with huge.open("wb") as file:
        file.truncate(size)
        for at in range(0, size, 1 << 20):
            file.seek(at)
            file.write(at.to_bytes(8, "big"))
    try:
        out = bed.folder / "huge"
        bed.run("host", "curl", "-sS", "--fail", "-o", str(out), f"http://{NET4}/huge.bin", timeout=110)
        with huge.open("rb") as a, out.open("rb") as b:
            assert hashlib.file_digest(a, "sha256").digest() == hashlib.file_digest(b, "sha256").digest()
        out.unlink()
    finally:
        huge.unlink()
