"""Scrapes metrics as Prometheus does, from a Unix socket."""

from __future__ import annotations

import socket
from pathlib import Path

from beds.patience import SLOWER


def scrape(path: Path) -> str:
    """What is answered, with the head of HTTP."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10 * SLOWER)
        connection.connect(str(path))
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        with connection.makefile("rb") as answer:
            return answer.read().decode()


def value(text: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    wanted = {f'{label}="{what}"' for label, what in labels.items()}
    found = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(number) for series, number in found if all(label in series for label in wanted))
