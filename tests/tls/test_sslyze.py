"""sslyze looks at a listener of ours, as the proxy is without any setting: tests/tls/run.

It connects some hundred times, in any version, with any cipher, and tries known attacks.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.tls_looked_at import our_server, place

PYTHON = os.environ.get("XTS_TEST_SSLYZE", "")
SCAN_S = 600.0
SCANS = ("sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "certinfo", "compression", "early_data")
SCANS += ("elliptic_curves", "ems", "fallback", "heartbleed", "openssl_ccs", "reneg", "resum", "robot")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(SCAN_S + 60),
    pytest.mark.skipif(not PYTHON, reason="sslyze is not here: tests/tls/run"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each of its plug-ins has found, by name."""
    out = tmp_path_factory.mktemp("sslyze") / "found.json"
    with place(ciphers="") as made, our_server(made) as port:
        roots = Path(made.folder) / "own.pem"
        command = [PYTHON, "-m", "sslyze", f"localhost:{port}", "--json_out", str(out), "--certinfo_ca_file"]
        command += [str(roots), "--mozilla_config", "disable", *(f"--{one}" for one in SCANS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SCAN_S, check=False)
        assert out.exists(), done.stdout + done.stderr
        (scanned,) = json.loads(out.read_text())["server_scan_results"]
        assert scanned["connectivity_status"] == "COMPLETED", done.stdout
        yield scanned["scan_result"]


def result(found: dict[str, Any], name: str) -> dict[str, Any]:
    assert found[name]["status"] == "COMPLETED", found[name]
    told: dict[str, Any] = found[name]["result"]
    return told


@pytest.mark.parametrize("version", ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"])
def test_old_versions_are_refused(found: dict[str, Any], version: str) -> None:
    assert result(found, f"{version}_cipher_suites")["accepted_cipher_suites"] == []


@pytest.mark.parametrize("version", ["tls_1_2", "tls_1_3"])
def test_only_authenticated_encryption_with_ephemeral_keys(found: dict[str, Any], version: str) -> None:
    accepted = result(found, f"{version}_cipher_suites")["accepted_cipher_suites"]
    assert len(accepted) == 3
    for one in accepted:
        assert one["cipher_suite"]["key_size"] >= 128
        assert any(word in one["cipher_suite"]["name"] for word in ("GCM", "POLY1305"))
        assert one["ephemeral_key"]["type_name"] == "ECDH"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("heartbleed", {"is_vulnerable_to_heartbleed": False}),
        ("openssl_ccs_injection", {"is_vulnerable_to_ccs_injection": False}),
        ("robot", {"robot_result": "NOT_VULNERABLE_RSA_NOT_SUPPORTED"}),
        ("tls_compression", {"supports_compression": False}),
        ("tls_1_3_early_data", {"supports_early_data": False}),
        ("tls_fallback_scsv", {"supports_fallback_scsv": True}),
        (
            "session_renegotiation",
            {"supports_secure_renegotiation": True, "is_vulnerable_to_client_renegotiation_dos": False},
        ),
        ("tls_extended_master_secret", {"supports_ems_extension": True}),
    ],
)
def test_attacks(found: dict[str, Any], name: str, expected: dict[str, object]) -> None:
    told = result(found, name)
    assert {key: told[key] for key in expected} == expected


def test_sessions_are_resumed(found: dict[str, Any]) -> None:
    told = result(found, "session_resumption")
    assert told["session_id_resumption_result"] == told["tls_ticket_resumption_result"] == "FULLY_SUPPORTED"


def test_the_chain(found: dict[str, Any]) -> None:
    (deployed,) = result(found, "certificate_info")["certificate_deployments"]
    assert deployed["received_chain_has_valid_order"] and not deployed["verified_chain_has_sha1_signature"]
