"""The tables about TLS: files are checked with the file that names them, and each mistake has its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from beds.authority import PSS_RESTRICTIONS, Authority, Issued, self_signed_pss
from xts_messages.settings.config_mistakes import ConfigError
from xts_proxy.__main__ import main
from xts_proxy.config.config import load, parse, render, restart_needed

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("localhost")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with what a configuration needs."""
    put(tmp_path / "www.pem", SERVER.certificate)
    put(tmp_path / "www.key", SERVER.key)
    put(tmp_path / "roots.pem", AUTHORITY.certificate)
    put(tmp_path / "crl.pem", AUTHORITY.revoke(SERVER))
    put(tmp_path / "ocsp.der", AUTHORITY.ocsp_good(SERVER))
    return tmp_path


def put(file: Path, data: bytes, mode: int = 0o600) -> None:
    file.write_bytes(data)
    file.chmod(mode)


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return [str(mistake) for mistake in caught.value.mistakes]


def identity(files: Path, **keys: str) -> str:
    """A table; keys of None are left out."""
    values = {"name": "www", "certificate": f"{files}/www.pem", "key": f"{files}/www.key"} | keys
    return "[[tls.identity]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


def test_all_of_it(files: Path) -> None:
    text = (
        '[tls]\nmin_version = "1.3"\ncrypto = "user"\nverify_required = true\nsession_cache = 0\n'
        + identity(files, ocsp=f"{files}/ocsp.der", queues="0-3,7")
        + f'[[tls.trust]]\nname = "default"\nfile = "{files}/roots.pem"\ncrl = "{files}/crl.pem"\n'
        + f'[[tls.trust]]\nname = "all"\ndirectory = "{files}"\n'
    )
    config, given = parse(text, "f")
    assert config.tls.min_version == "1.3" and config.tls.verify_required
    assert 7 in config.tls.identity[0].queues and 4 not in config.tls.identity[0].queues
    shown = render(config, given)
    assert parse(shown, "f")[0] == config
    assert SERVER.key.splitlines()[1].decode() not in shown


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"certificate": "/none.pem"}, "f:3:15: tls.identity[0].certificate: /none.pem: No such file or directory"),
        ({"certificate": "/dev/null"}, "f:3:15: tls.identity[0].certificate: /dev/null: is no regular file"),
        ({"certificate": "www.pem"}, "f:3:15: tls.identity[0].certificate: expected an absolute path"),
        ({"name": "a b"}, "f:2:8: tls.identity[0].name: expected a name"),
        ({"name": "x" * 64}, "f:2:8: tls.identity[0].name: expected a name of at most 63"),
        ({"queues": "x"}, "f:5:10: tls.identity[0].queues"),
        ({"ocsp": "/none.der"}, "f:5:8: tls.identity[0].ocsp: /none.der: No such file"),
    ],
)
def test_mistakes_in_an_identity(files: Path, keys: dict[str, str], told: str) -> None:
    (line,) = mistakes(identity(files, **keys))
    assert line.startswith(told)


@pytest.mark.parametrize(
    ("file", "data", "told"),
    [
        ("www.key", b"nothing", "f:4:7: tls.identity[0].key: key"),
        ("www.pem", b"nothing", "f:3:15: tls.identity[0].certificate: certificate"),
        ("www.pem", b"", "www.pem: is empty"),
        ("www.key", AUTHORITY.issue("localhost", kind="rsa").key, "certificate and key do not belong together"),
    ],
)
def test_files_that_are_none(files: Path, file: str, data: bytes, told: str) -> None:
    put(files / file, data)
    (line,) = mistakes(identity(files))
    assert told in line


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")
@pytest.mark.parametrize("kind", PSS_RESTRICTIONS)
def test_keys_that_are_restricted(files: Path, kind: str) -> None:
    """What no handshake could use is refused here."""
    issued = self_signed_pss(kind)
    put(files / "www.pem", issued.certificate)
    put(files / "www.key", issued.key)
    if kind in ("rsa-pss-sha1", "rsa-pss-mixed", "rsa-pss-salt"):
        (line,) = mistakes(identity(files))
        assert line.startswith("f:4:7: tls.identity[0].key: key: it is restricted to what TLS does not use")
    else:
        parse(identity(files), "f")


@pytest.mark.parametrize(("mode", "taken"), [(0o600, True), (0o640, True), (0o644, False), (0o604, False)])
def test_a_key_that_everybody_may_read_is_refused(files: Path, mode: int, taken: bool) -> None:
    put(files / "www.key", SERVER.key, mode)
    if taken:
        parse(identity(files), "f")
        return
    (line,) = mistakes(identity(files))
    assert f"www.key: is a key that everybody may read (mode {mode:04o}): chmod o-rwx" in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[tls.trust]]\nname = "x"', "expected either file or directory, found neither"),
        ('[[tls.trust]]\nname = "x"\nfile = "/x"\ndirectory = "/y"', "f:3:8: tls.trust[0].file: expected either"),
        ('[[tls.trust]]\nname = "x"\nfile = "/none.pem"', "f:3:8: tls.trust[0].file: /none.pem: No such file"),
        ('[[tls.trust]]\nname = "x"\ndirectory = "/none"', "f:3:13: tls.trust[0].directory: /none: No such file"),
        ('[tls]\nmin_version = "1.1"', 'f:2:15: tls.min_version: expected "1.2" or "1.3", found "1.1"'),
        ('[tls]\nciphers = "no-such"', "f:2:11: tls.ciphers: OpenSSL knows none of no-such"),
        ('[tls]\nciphersuites = "no-such"', "f:2:16: tls.ciphersuites: OpenSSL does not know all of no-such"),
        ("[tls]\nsession_timeout_s = 0", "expected an integer from 1 to 604800"),
        ("[tls]\nidentities = 1", "f:2:1: tls.identities: unknown key; did you mean identity?"),
    ],
)
def test_other_mistakes(text: str, told: str) -> None:
    (line,) = mistakes(text)
    assert told in line


def test_names_are_there_once(files: Path) -> None:
    (line,) = mistakes(identity(files) + identity(files))
    assert line == "f:6:8: tls.identity[1].name: www is used already, at tls.identity[0]"


def test_all_mistakes_are_told_at_once(files: Path) -> None:
    text = '[tls]\nciphers = "no-such"\n' + identity(files, key="/none.key") + '[[tls.trust]]\nname = "x"\n'
    assert [line.split(": ")[1] for line in mistakes(text)] == [
        "tls.ciphers",
        "tls.identity[0].key",
        "tls.trust[0].file",
    ]


def test_a_change_needs_no_restart(files: Path) -> None:
    old, _ = parse("", "f")
    new, _ = parse(identity(files), "f")
    assert restart_needed(old, new) == []


def test_nothing_of_a_key_is_in_a_mistake(files: Path) -> None:
    """Swapped by accident: the key is named as the certificate."""
    for line in mistakes(identity(files, certificate=f"{files}/www.key")):
        assert not any(part.decode() in line for part in SERVER.key.split())


def test_a_file_is_read_as_it_is_now(files: Path) -> None:
    """As a reload does."""
    file = files / "proxy.toml"
    file.write_text(identity(files))
    load(file)
    other: Issued = AUTHORITY.issue("localhost", kind="rsa")
    put(files / "www.pem", other.certificate)
    with pytest.raises(ConfigError, match="do not belong together"):
        load(file)
    put(files / "www.key", other.key)
    load(file)


def test_explain(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = files / "proxy.toml"
    file.write_text(identity(files, queues="0-3"))
    for what, name, queue, told in (
        ("identity", "www", "3", 'allow: tls.identity[0] (queues = "0-3")'),
        ("identity", "www", "4", 'deny: tls.identity[0] (queues = "0-3")'),
        ("identity", "other", "3", "deny: no tls.identity is named other"),
        ("trust", "default", "3", "allow: the roots of this machine"),
        ("trust", "other", "3", "deny: no tls.trust is named other"),
    ):
        assert main(["--config", str(file), "--explain", what, name, "--queue", queue]) == 0
        assert capsys.readouterr().out.startswith(told)
