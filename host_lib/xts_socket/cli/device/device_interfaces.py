"""`xts status --interfaces`: the network interfaces of the device, as the proxy tells them."""

from __future__ import annotations

import json
from dataclasses import asdict

from xts_messages.terminal.text_table import print_table

from ... import interfaces
from ..options import endpoint_path


def show(as_json: bool) -> int:
    """Prints them; returns the exit status."""
    told = interfaces()
    found = [asdict(one) | {"addresses": [str(address) for address in one.addresses]} for one in told]
    if as_json:
        print(json.dumps({"endpoint": endpoint_path(), "interfaces": found}, indent=2))
        return 0
    rows = [
        (
            str(one.index),
            one.name,
            "yes" if one.multicast else "no",
            one.stamping.text() if one.stamping else "?",
            " ".join(map(str, one.addresses)),
        )
        for one in told
    ]
    print_table(
        ("Index", "Name", "Multicast", "Time stamps", "Addresses"),
        rows,
        ("Index",),
        empty="the device has only loopback",
    )
    return 0
