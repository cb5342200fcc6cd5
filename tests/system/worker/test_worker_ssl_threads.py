"""Only threads of the handshake pool make, use and free an SSL (dpu_proxy/native/ulp/tls/tls_ssl.c): OpenSSL takes
locks of the whole process for that, and a thread of the pool that has one may get no CPU for long."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from beds.native_core import compiler

#: Loaded before OpenSSL: writes to $CALLS which functions the proxy's library has called, and in which threads.
PRELOADED = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static void note(const char *name, void *caller)
{
	char thread[16] = "";
	Dl_info from;
	FILE *file;

	if (!dladdr(caller, &from) || !strstr(from.dli_fname, "xts_proxy/_native"))
		return;
	prctl(PR_GET_NAME, thread);
	file = fopen(getenv("CALLS"), "a");
	fprintf(file, "%s %s\n", name, thread);
	fclose(file);
}

#define NOTED(type, name) \
	type name(void *ssl) \
	{ \
		void *library = dlopen("libssl.so.3", RTLD_LAZY | RTLD_NOLOAD); \
		type (*real)(void *) = (type (*)(void *))dlsym(library, #name); \
		note(#name, __builtin_return_address(0)); \
		return real(ssl); \
	}

NOTED(void *, SSL_new)
NOTED(int, SSL_do_handshake)
NOTED(void, SSL_free)
"""
FUNCTIONS = {"SSL_new", "SSL_do_handshake", "SSL_free"}
#: Clients and servers: handshakes that succeed, that fail, that a peer or a host ends.
CASES = "answered or fails or goes or starttls or closing or announced or time_out"


def test_only_threads_of_the_pool_have_an_ssl(tmp_path: Path) -> None:
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    if os.environ.get("LD_PRELOAD"):
        pytest.skip("a sanitizer is preloaded")
    source, library, calls = tmp_path / "noted.c", tmp_path / "noted.so", tmp_path / "calls"
    source.write_text(PRELOADED)
    command = [compiler(), "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    tests = str(Path(__file__).with_name("test_worker_handshake.py"))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CASES, tests],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"LD_PRELOAD": str(library), "CALLS": str(calls)},
    )
    assert run.returncode == 0, run.stdout[-3000:]
    found = {tuple(line.split()) for line in calls.read_text().splitlines()}
    assert found == {(function, "xts-handshake") for function in FUNCTIONS}
