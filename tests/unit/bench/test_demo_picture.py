"""What the demo makes of the figures: bars, the verdict, where it loses; and what it asks of the bench."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from bench import picture as bench_picture
from bench.options import RESULTS, asked, parser
from bench.results import files_of
from bench.subjects import WORKLOADS
from rich.console import Console
from xts_lab import demo_picture
from xts_lab.certificate import self_signed
from xts_lab.demo_measure import ROWS, WAYS, Figure, Found, Plan, found_in, measured, rows_named
from xts_lab.demo_picture import bar, losses, print_all, throughput, verdict

DOCUMENTS = Path(__file__).resolve().parents[3] / "deploy" / "docs"
PICTURE, FIGURES = DOCUMENTS / "images" / "demo.svg", DOCUMENTS / "figures.md"
PLAN = Plan(ROWS, ("afxdp", "shm"), False, 3, 0.3)


def found(**values: tuple[float, float, float, float]) -> Found:
    """By row: kernel TCP, HAProxy, afxdp, shm."""
    figures = {
        (key.replace("_", "-"), way): Figure(value, value * 0.9, value * 1.1, 1000.0)
        for key, row in values.items()
        for way, value in zip(WAYS, row, strict=True)
    }
    return Found(figures, {"cpu": "CPU", "kernel": "6.18", "date": "2026-01-02T03:04:05"}, rounds=3)


GAIN = found(
    handshake=(1000, 200, 70, 50), tls_request=(20, 15, 5, 4), request=(12, 12, 4, 3), bulk=(0.2, 0.3, 0.36, 0.1)
)


@pytest.mark.parametrize("loopback", [False, True])
def test_the_bench_knows_what_is_asked(loopback: bool) -> None:
    plan = Plan(ROWS, ("shm",) if loopback else ("afxdp", "shm"), loopback, 3, 0.3)
    words = plan.command()
    wanted = asked(parser("").parse_args(words[words.index("bench") + 1 :]))
    planned = {(w.key, s.key) for w in wanted.wanted() for s in w.subjects if wanted.wants(w, s)}
    assert planned == set(plan.runs())
    assert len(planned) == len(ROWS) * (3 if loopback else 4)
    assert wanted.loopback is loopback and wanted.repetitions == 3 and wanted.minutes is not None
    units = {row.workload: row.unit for row in ROWS}
    assert all((units[w.key] == "s/GB") is w.bulk for w in WORKLOADS if w.key in units)


def test_the_median_of_the_rounds_counts() -> None:
    lines = [{"kind": "environment", "date": "d", "cpu": "c", "kernel": "k", "commit": "0", "haproxy": "h", "more": 1}]
    for host in (0.5, 0.1, 0.3):
        result = {"operations": 1000, "seconds": 0.5, "host_core_s": host, "p50_us": 1.0, "foreign_share": host / 10}
        lines.append({"kind": "run", "workload": "requests-32", "subject": "shm", "result": result})
    titles = [(title, so_far) for title, so_far in found_in(PLAN, iter(lines))]
    title, last = titles[-1]
    assert len(titles) == 3 and title == "request, shm"
    assert last.figures["request", "shm"] == Figure(300, 100, 500, 2000)
    assert last.foreign_share == pytest.approx(0.03) and last.rounds == 3 and "more" not in last.environment


def test_disturbed_runs_do_not_count_where_there_are_others() -> None:
    def line(host: float, share: float) -> dict[str, object]:
        result = {"operations": 1000, "seconds": 1.0, "host_core_s": host, "foreign_share": share}
        return {"kind": "run", "workload": "requests-32", "subject": "shm", "result": result}

    *_, (_, calm) = found_in(PLAN, iter([line(0.9, 0.8), line(0.2, 0.01), line(0.1, 0.0)]))
    assert calm.figures["request", "shm"].high == 200 and calm.foreign_share < 0.02
    *_, (_, busy) = found_in(PLAN, iter([line(0.9, 0.8), line(0.8, 0.7)]))
    assert busy.figures["request", "shm"].value == 850 and busy.foreign_share == 0.75


def test_no_figure_is_below_nothing() -> None:
    """What other programs had of a core is taken off, and it cannot be measured exactly."""
    assert measured("µs", {"seconds": 0.5, "host_core_s": -0.01, "operations": 100}) == (0.0, 200.0)
    assert measured("s/GB", {"seconds": 1.0, "host_core_s": -0.01, "bytes": 1e9}) == (0.0, 8.0)


def test_the_verdict_says_what_is_gained() -> None:
    assert verdict(GAIN, ROWS) == (
        "A TLS handshake costs the host 5 to 7 % of the CPU that kernel TCP takes, a TLS request 20 to 25 % and a "
        "plain request 25 to 33 %; of what HAProxy leaves it to do 25 to 35 %, 27 to 33 % and 25 to 33 %."
    )
    assert verdict(Found(), ROWS) == "" == throughput(Found(), ROWS)
    assert throughput(GAIN, ROWS).startswith("Throughput: 100 % of HAProxy's; 100 % of direct TCP's, for here")


def test_where_it_loses_it_says_so_and_why() -> None:
    (told,) = losses(GAIN, ROWS, False)
    assert told.startswith("plain bulk, sent, afxdp: 1.8 times kernel TCP, 1.2 times HAProxy: on veth AF_XDP copies")


def test_bars_fit_and_are_to_scale() -> None:
    assert bar(1, 10) == "█" * 10
    assert bar(0.5, 10) == "█" * 5
    assert bar(0.55, 10) == "█████▌"
    assert bar(0, 10) == "▏", "what is measured is seen"
    screen = io.StringIO()
    print_all(Console(file=screen, width=100), GAIN, ROWS, False)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    assert any("kernel TCP + OpenSSL" in line and "█" * 34 in line for line in lines)


def test_no_verdict_on_a_busy_machine() -> None:
    busy = found(handshake=(1000, 200, 70, 50))
    busy.foreign_share = 0.5
    screen = io.StringIO()
    print_all(Console(file=screen, width=100), busy, ROWS, False)
    lines = screen.getvalue().splitlines()
    warning = "Other programs had 50% of a core meanwhile: do not rely on the figures."
    assert (lines[0], lines[-1]) == (warning, f"No verdict. {warning}")
    assert not [line for line in lines[1:-1] if "%" in line]


def test_a_rough_verdict_on_a_machine_that_was_somewhat_busy() -> None:
    busy = found(handshake=(1000, 200, 70, 50))
    busy.foreign_share = 0.1
    screen = io.StringIO()
    print_all(Console(file=screen, width=200), busy, ROWS, False)
    lines = screen.getvalue().splitlines()
    assert "10% of a core" in lines[0] and lines[0] == lines[-1]
    assert all(line.startswith("Roughly") for line in lines[1:-1] if "%" in line)


@pytest.mark.parametrize("name", ["demo.svg", "demo.png"])
def test_the_drawing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    path = tmp_path / name
    demo_picture.plot(path, GAIN, ROWS)
    first = path.read_bytes()
    assert b"kernel TCP + OpenSSL" in first or name == "demo.png"
    demo_picture.plot(path, GAIN, ROWS)
    assert path.read_bytes() == first, "the same figures make the same file"


#: What is left of a telephone's 390 pixels between the margins of a page.
PAGE_PX, LETTER_PX = 358, 10


def test_the_picture_can_be_read_on_a_telephone() -> None:
    """That of the README: it is made as narrow as the page."""
    text = PICTURE.read_text(encoding="utf-8")
    width = re.search(r'viewBox="0 0 ([0-9.]+)', text)
    assert width
    sizes = [float(size) for size in re.findall(r"(?:font-size: |font: (?:\w+ )?)([0-9.]+)px", text)]
    assert len(sizes) > 40 and min(sizes) * PAGE_PX / float(width[1]) >= LETTER_PX


def test_the_first_table_of_the_figures_is_what_the_picture_shows() -> None:
    page = FIGURES.read_text(encoding="utf-8").partition(bench_picture.SECTION)[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if " (" in line]
    shown = list(bench_picture.cells(bench_picture.found_over(files_of([RESULTS]))))
    assert [tuple(row) for row in rows] == shown, "tests/bench/run --results --into deploy/docs/figures.md"
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", PICTURE.read_text(encoding="utf-8"))
    for heading, *values in shown:
        place = drawn.index(heading)
        for value in values:
            assert value.partition(" ")[0] in drawn, (place, value)


def test_rows_by_name() -> None:
    assert [row.key for row in rows_named(["bulk", "handshake"])] == ["handshake", "bulk"]
    assert rows_named(None) == ROWS


def test_a_certificate_for_a_name(tmp_path: Path) -> None:
    made = self_signed(tmp_path, "web", "web.demo.test")
    assert made.both.read_bytes() == made.certificate.read_bytes() + made.key.read_bytes()
    assert made.key.stat().st_mode & 0o077 == 0 and made.both.stat().st_mode & 0o077 == 0
