"""OpenSSL's library context of handshakes (dpu_proxy/native/ulp/tls/tls_library.c): it has all that TLS asks for, it
reads the keys of certificates, and a machine that is configured to use other providers uses
them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.native_program import program_of

#: ciphers: those of both contexts, and the versions they are for. keys FILE...: certificates with the kind of their
#: key. which: whether there is one.
PROGRAM = r"""
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

OSSL_LIB_CTX *tls_library(void);

static void ciphers(OSSL_LIB_CTX *library)
{
	SSL_CTX *ssl = SSL_CTX_new_ex(library, NULL, TLS_method());
	STACK_OF(SSL_CIPHER) *all;

	SSL_CTX_set_security_level(ssl, 2);
	SSL_CTX_set_cipher_list(ssl, "ALL:COMPLEMENTOFALL");
	all = SSL_CTX_get_ciphers(ssl);
	for (int i = 0; i < sk_SSL_CIPHER_num(all); i++)
		printf("%s ", SSL_CIPHER_get_name(sk_SSL_CIPHER_value(all, i)));
	printf("\n");
	SSL_CTX_free(ssl);
}

static X509 *read_one(OSSL_LIB_CTX *library, const char *path)
{
	X509 *x = X509_new_ex(library, NULL);
	BIO *pem = BIO_new_file(path, "r");

	PEM_read_bio_X509(pem, &x, NULL, NULL);
	BIO_free(pem);
	return x;
}

int main(int count, char **words)
{
	if (!strcmp(words[1], "which")) {
		puts(tls_library() ? "own" : "default");
	} else if (!strcmp(words[1], "ciphers")) {
		ciphers(tls_library());
		ciphers(NULL);
	}
	for (int i = 2; i < count && !strcmp(words[1], "keys"); i++) {
		X509 *x = read_one(tls_library(), words[i]);
		EVP_PKEY *key = X509_get0_pubkey(x);

		printf("%s %d\n", key ? EVP_PKEY_get0_type_name(key) : "none", X509_verify(x, key));
		X509_free(x);
	}
	return 0;
}
"""
#: The kind of a key as OpenSSL names it, and how it is asked for.
KINDS = {
    "RSA": ["rsa:2048"],
    "RSA-PSS": ["rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"],
    "EC": ["ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"],
    "ED25519": ["ed25519"],
    "ED448": ["ed448"],
}

Asked = Callable[..., list[str]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Runs the program and returns its lines."""
    directory = tmp_path_factory.mktemp("library")
    files = ("ulp/tls/tls_library.c", "ulp/tls/tls_kdf.c")
    built = program_of(directory, PROGRAM, *files, options=("-lssl", "-lcrypto"))

    def ask(*words: object, configuration: str = "") -> list[str]:
        (directory / "openssl.cnf").write_text(configuration)
        done = subprocess.run(
            [built, *map(str, words)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"OPENSSL_CONF": str(directory / "openssl.cnf")},
        )
        return done.stdout.splitlines()

    return ask


def certificate(directory: Path, kind: str) -> Path:
    path = directory / f"{kind}.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-subj", "/CN=test", "-keyout", "/dev/null", "-out", str(path)]
    subprocess.run([*command, "-newkey", *KINDS[kind]], check=True, capture_output=True, timeout=60)
    return path


def test_ciphers_are_those_of_openssl(asked: Asked) -> None:
    here, openssl = asked("ciphers")
    assert here == openssl
    assert {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "AES256-CCM"} <= set(here.split())


def test_every_kind_of_key_is_read_and_verifies(asked: Asked, tmp_path: Path) -> None:
    found = asked("keys", *(certificate(tmp_path, kind) for kind in KINDS))
    assert found == [f"{kind} 1" for kind in KINDS]


def is_slow() -> bool:
    """OpenSSL 3.2 has learned to find decoders by itself."""
    version = subprocess.run(["openssl", "version"], check=True, capture_output=True, text=True).stdout.split()[1]
    return tuple(map(int, version.split(".")[:2])) < (3, 2)


def test_other_providers_of_the_machine_are_used(asked: Asked) -> None:
    sections = "openssl_conf = all\n[all]\nproviders = those\n[those]\ndefault = on\n{0} = on\n[on]\nactivate = 1\n"
    assert asked("which") == ["own" if is_slow() else "default"]
    assert asked("which", configuration=sections.format("base")) == ["default"]


def test_default_properties_of_the_machine_hold(asked: Asked) -> None:
    text = "openssl_conf = all\n[all]\nalg_section = algorithms\n[algorithms]\ndefault_properties = {0}\n"
    assert asked("which", configuration=text.format("fips=yes")) == ["default"]
