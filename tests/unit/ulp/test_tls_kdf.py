"""The key derivation of TLS 1.3 (dpu_proxy/native/ulp/tls/tls_kdf.c): the values of RFC 8448 3, OpenSSL's for whatever
may come, and the traffic secrets that it tells."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pytest
from beds.native_program import program_of

#: A line: the mode (extract, expand), the digest, key, salt, context, label and the length of the result; "-" for what
#: is not given, bytes in hexadecimal. The answer: what is made here, what OpenSSL makes ("refused"), and what was told.
PROGRAM = r"""
#include "ulp/tls/tls_kdf.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <stdio.h>
#include <string.h>

static const char *said = "nothing";

static void told(void *of, bool of_client, const uint8_t *secret, size_t bytes)
{
	(void)secret;
	said = of == &said && bytes ? (of_client ? "client" : "server") : "wrong";
}

static void print(bool ok, const uint8_t *out, size_t bytes)
{
	for (size_t i = 0; ok && i < bytes; i++)
		printf("%02x", out[i]);
	printf("%s ", ok ? "" : "refused");
}

static bool by_openssl(const OSSL_PARAM *parameters, uint8_t *out, size_t bytes)
{
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, TLS_KDF_NAME, NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
	bool ok = EVP_KDF_derive(ctx, out, bytes, parameters) == 1;

	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return ok;
}

static void *function(int number)
{
	const OSSL_DISPATCH *d = tls_kdf_functions;

	while (d->function_id && d->function_id != number)
		d++;
	return (void *)d->function;
}

static bool by_ours(const OSSL_PARAM *parameters, uint8_t *out, size_t bytes)
{
	void *ctx = ((OSSL_FUNC_kdf_newctx_fn *)function(OSSL_FUNC_KDF_NEWCTX))(NULL);
	int ok = ((OSSL_FUNC_kdf_derive_fn *)function(OSSL_FUNC_KDF_DERIVE))(ctx, out, bytes, parameters);

	((OSSL_FUNC_kdf_freectx_fn *)function(OSSL_FUNC_KDF_FREECTX))(ctx);
	return ok == 1;
}

static OSSL_PARAM *add(OSSL_PARAM *p, const char *name, const char *hex, uint8_t *room)
{
	size_t n = 0;

	if (strcmp(hex, "-") == 0)
		return p;
	OPENSSL_hexstr2buf_ex(room, 4096, &n, hex, 0);
	*p++ = OSSL_PARAM_construct_octet_string(name, room, n);
	return p;
}

int main(void)
{
	static char mode[16], digest[32], key[8192], salt[8192], context[8192], label[1024];
	static uint8_t room[4][4096], out[2][16384];
	size_t bytes;

	if (!tls_kdf_load(NULL))
		return 1;
	tls_kdf_tells(told, &said);
	while (scanf("%15s %31s %8191s %8191s %8191s %1023s %zu", mode, digest, key, salt, context, label, &bytes) == 7) {
		int number = strcmp(mode, "extract") ? EVP_KDF_HKDF_MODE_EXPAND_ONLY : EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
		OSSL_PARAM parameters[8], *p = parameters;

		*p++ = OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &number);
		*p++ = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
		p = add(p, OSSL_KDF_PARAM_KEY, key, room[0]);
		p = add(p, OSSL_KDF_PARAM_SALT, salt, room[1]);
		p = add(p, OSSL_KDF_PARAM_DATA, context, room[2]);
		p = add(p, OSSL_KDF_PARAM_LABEL, label, room[3]);
		*p++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, (char *)"tls13 ", 6);
		*p++ = OSSL_PARAM_construct_end();
		said = "nothing";
		print(by_ours(parameters, out[0], bytes), out[0], bytes);
		print(by_openssl(parameters, out[1], bytes), out[1], bytes);
		puts(said);
	}
	tls_kdf_unload();
	return 0;
}
"""


class Asked(NamedTuple):
    """One derivation. None: not given."""

    mode: str
    key: bytes | None
    label: bytes
    count: int
    salt: bytes | None = None
    context: bytes | None = None
    digest: str = "SHA256"

    def line(self) -> str:
        given = [value.hex() if value else "-" for value in (self.key, self.salt, self.context, self.label)]
        return f"{self.mode} {self.digest} {' '.join(given)} {self.count}\n"


class Answer(NamedTuple):
    ours: str
    openssl: str
    told: str


Ask = Callable[[list[Asked]], list[Answer]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    built = program_of(tmp_path_factory.mktemp("kdf"), PROGRAM, "ulp/tls/tls_kdf.c", options=("-lcrypto",))

    def ask(asked: list[Asked]) -> list[Answer]:
        lines = "".join(one.line() for one in asked)
        done = subprocess.run([built], input=lines, check=True, capture_output=True, text=True, timeout=60)
        answers = [Answer(*line.split()) for line in done.stdout.splitlines()]
        assert len(answers) == len(asked)
        return answers

    return ask


ECDHE = bytes.fromhex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d")
EARLY = "33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a"
HANDSHAKE = "1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac"
MASTER = "18df06843d13a08bf2a449844c5f8a478001bc4d4c627984d5a41da8d0402919"
CLIENT = bytes.fromhex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5")


def test_the_key_schedule_of_the_rfc(ask: Ask) -> None:
    derived = b"derived"
    found = ask(
        [
            Asked("extract", None, derived, 32),
            Asked("extract", ECDHE, derived, 32, salt=bytes.fromhex(EARLY)),
            Asked("extract", None, derived, 32, salt=bytes.fromhex(HANDSHAKE)),
            Asked("expand", CLIENT, b"key", 16),
            Asked("expand", CLIENT, b"iv", 12),
        ]
    )
    expected = [EARLY, HANDSHAKE, MASTER, "17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9"]
    assert [answer.ours for answer in found] == expected
    assert {answer.told for answer in found} == {"nothing"}


def test_as_openssl(ask: Ask) -> None:
    dice = random.Random(8446)

    def some(least: int, most: int) -> bytes:
        return dice.randbytes(dice.randint(least, most))

    asked = []
    for _ in range(400):
        digest = dice.choice(["SHA256", "SHA384", "SHA2-256", "SHA2-384"])
        size = 32 if digest.endswith("256") else 48
        label, context = some(1, 30), dice.choice([None, dice.randbytes(size)])
        asked.append(Asked("expand", dice.randbytes(size), label, dice.randint(1, 255 * size), None, context, digest))
        key, salt = dice.choice([None, some(1, 600)]), dice.choice([None, dice.randbytes(size)])
        asked.append(Asked("extract", key, b"derived", size, salt, None, digest))
    for one, answer in zip(asked, ask(asked), strict=True):
        assert answer.ours == answer.openssl != "refused", one


@pytest.mark.parametrize(
    "asked",
    [
        Asked("expand", bytes(32), b"key", 255 * 32 + 1),
        Asked("expand", None, b"key", 16),
        Asked("expand", bytes(129), b"key", 16, digest="SHA384"),
        Asked("expand", bytes(32), b"l" * 250, 16),
        Asked("expand", bytes(32), b"key", 16, digest="SHA1"),
        Asked("extract", bytes(32), b"derived", 31),
    ],
)
def test_what_tls_never_asks_for_is_refused(ask: Ask, asked: Asked) -> None:
    (answer,) = ask([asked])
    assert answer.ours == "refused"


def test_secrets_of_application_data_are_told(ask: Ask) -> None:
    labels = [b"c ap traffic", b"s ap traffic", b"c hs traffic", b"s hs traffic", b"exp master", b"res master"]
    found = ask([Asked("expand", bytes(48), label, 48, None, bytes(48), "SHA384") for label in labels])
    assert [answer.told for answer in found] == ["client", "server", *["nothing"] * 4]
