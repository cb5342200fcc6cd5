"""Who asks for something that may be done in part looks at how much it was. All C code is searched for calls (write,
send, SSL_write_ex …) whose count nobody looks at: it is thrown away, compared with zero only, or written to a variable
that is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).resolve().parents[3]
FOLDERS = ("dpu_proxy/native", "host_lib/native", "host_lib/preload", "host_lib/nss", "messages/native")

#: They return how much they did.
COUNTING = """
    write writev pwrite pwritev send sendto sendmsg sendmmsg sendfile splice tee vmsplice copy_file_range
    read readv pread preadv recv recvfrom recvmsg recvmmsg getrandom fread fwrite readlink readlinkat
    SSL_write SSL_read SSL_peek BIO_write BIO_read xts_send xts_sendto xts_sendmsg xts_recv xts_recvmsg
    ulp_write_below ulp_layer_write ulp_stack_write ulp_read_below ulp_read_stream_below
    ulp_layer_read ulp_stack_read
""".split()  # noqa: SIM905
#: They write it to the variable of this argument, counted from 0; a pointer handed on is somebody else's to look at.
TELLING = {
    "SSL_write_ex": 3, "SSL_read_ex": 3, "SSL_peek_ex": 3, "BIO_write_ex": 3, "BIO_read_ex": 3,
    "EVP_PKEY_sign": 2, "EVP_DigestSign": 2, "EVP_PKEY_decrypt": 2, "EVP_PKEY_derive": 2, "EVP_Digest": 3,
    "EVP_CipherUpdate": 2, "EVP_CipherFinal_ex": 2, "OPENSSL_hexstr2buf_ex": 2, "EVP_PKEY_get_utf8_string_param": 4,
}  # fmt: skip

#: (file, function): why what it says may be passed over.
WHOLE = "a datagram or message (SOCK_SEQPACKET): all of it, or an error"
BYTE = "a byte, or the eight of an eventfd or timer"
ALLOWED = {
    ("dpu_proxy/native/keys/key_client.c", "sendmsg"): WHOLE,
    ("dpu_proxy/native/keys/key_process.c", "send"): WHOLE,
    (
        "messages/native/common/keyed_hash.h",
        "getrandom",
    ): "of at most 256 bytes it gives all or none (getrandom(2)), and waits until there are some",
    ("dpu_proxy/native/connection/tcp_counts.c", "recv"): BYTE,
    ("dpu_proxy/native/pushed/pushed.c", "ulp_stack_read"): "whether there is a byte; the connection ends",
    ("dpu_proxy/native/ulp/bottom.c", "recv"): BYTE,
    ("dpu_proxy/native/ulp/tls/tls_flood.c", "SSL_read_ex"): "the connection ends: what it still reads is nobody's",
    ("dpu_proxy/native/ulp/tls_keys/tls_keys_cipher.c", "EVP_CipherUpdate"): "an AEAD gives as much as it gets",
    ("dpu_proxy/native/ulp/tls_keys/tls_keys_cipher.c", "EVP_CipherFinal_ex"): "as before: nothing is left",
    ("host_lib/native/core/bell.c", "write"): BYTE,
    ("host_lib/native/core/bell.c", "read"): BYTE,
    ("host_lib/native/waiting/mirror.c", "send"): "fills a socket that only tells that it is full",
    ("host_lib/native/waiting/mirror.c", "recv"): "empties it",
    ("host_lib/native/waiting/progress_thread.c", "read"): BYTE,
    ("host_lib/preload/start.c", "write"): "a line for people",
    ("messages/native/attaching/tell_relatives.c", "sendmsg"): WHOLE,
    ("messages/native/queues/afxdp.c", "sendto"): "a kick, without data",
    ("messages/native/queues/afxdp_look.c", "recvfrom"): "a wake-up or a poll of the card, without data",
    ("messages/native/queues/afxdp_open.c", "sendto"): "a kick, without data",
    ("messages/native/common/allowed_syscalls.c", "write"): "the last words of a process that ends",
    ("messages/native/common/notice.c", "write"): "a line for people",
    ("messages/native/decorators/pcap.c", "fwrite"): "ferror() at the end of each batch, by which the capture ends",
    ("messages/native/relay/relay_orders.c", "send"): WHOLE,
    ("messages/native/queues/shm.c", "send"): BYTE,
}


class Found(NamedTuple):
    """A call whose count is passed over."""

    line: int
    function: str
    how: str


def without_comments(text: str) -> str:
    """The same lines, without comments and what strings say."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + " " * (len(m[0]) - 2) + '"', text)


def end_of_call(text: str, opening: int) -> int:
    """Behind the parenthesis that closes this one."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at + 1
    raise ValueError("parentheses do not match")


def arguments(call: str) -> list[str]:
    """What stands between the commas of a call's parentheses."""
    parts, depth = [""], 0
    for letter in call[1:-1]:
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def function_around(text: str, at: int) -> str:
    """From the line that begins with its brace to the one that ends it."""
    begin, end = text.rfind("\n{", 0, at), text.find("\n}", at)
    return text[begin:end] if begin >= 0 and end >= 0 else text


def is_read(name: str, function: str, call: str) -> bool:
    """Is the variable read anywhere but in its declaration and in this call?"""
    rest = function.replace(call, "", 1)
    declared = rf"^\s*(?:const |unsigned |static )*[a-z_0-9]+ (?:[^;()]*, ?)?\*?{name}(?: = [^,;]+)?(?:[,;])"
    return re.search(rf"(?<!&)(?<![\w>.]){name}\b", re.sub(declared, "", rest, flags=re.MULTILINE)) is not None


def passed_over(text: str) -> Iterator[Found]:
    """All of them in this C text."""
    text = without_comments(text)
    for match in re.finditer(rf"(?<![\w>.])(real\(\)->)?({'|'.join(COUNTING)})(\()", text):
        end, line = end_of_call(text, match.start(3)), text.count("\n", 0, match.start()) + 1
        before, behind = text[: match.start()].rstrip(), text[end:].lstrip()
        if before.endswith("XTS("):  # which makes an errno of it
            before, behind = before[:-4].rstrip(), behind[1:].lstrip()
        if re.match(r"[{A-Za-z_]", behind) or (before and re.search(r"[\w*]$", before) and "return" not in before[-7:]):
            continue  # a declaration or definition
        alone = re.search(r"(?:[;{})]|\belse|\bdo)$", before) and behind.startswith(";")
        if alone or before.endswith(("(void)", "(void)!")):
            yield Found(line, match[2], "thrown away")
        elif re.match(r"(?:<=?|>=?|==|!=) ?(?:0|-1)\b", behind):
            yield Found(line, match[2], "compared with zero only")
    for match in re.finditer(rf"(?<![\w>.])({'|'.join(TELLING)})(\()", text):
        end, line = end_of_call(text, match.start(2)), text.count("\n", 0, match.start()) + 1
        call, place = text[match.start() : end], TELLING[match[1]]
        found = arguments(text[match.start(2) : end])
        if len(found) > place and re.fullmatch(r"&\w+", found[place]):
            name = found[place][1:]
            if not is_read(name, function_around(text, match.start()), call):
                yield Found(line, match[1], f"{name} is not read")


def files() -> list[Path]:
    found = [f for folder in FOLDERS for ext in ("*.c", "*.h") for f in (TOP / folder).rglob(ext)]
    return sorted(f for f in found if "examples" not in f.parts)


def test_no_count_is_passed_over() -> None:
    found = []
    used = set()
    for file in files():
        name = str(file.relative_to(TOP))
        for one in passed_over(file.read_text()):
            if (name, one.function) in ALLOWED:
                used.add((name, one.function))
            else:
                found.append(f"{name}:{one.line}: {one.function}(): {one.how}")
    assert found == []
    assert sorted(ALLOWED.keys() - used) == [], "allowed, and not there"


@pytest.mark.parametrize(
    ("statement", "how"),
    [
        ("write(fd, data, n);", "thrown away"),
        ("(void)send(fd, data, n, 0);", "thrown away"),
        ("(void)!write(fd, data, n);", "thrown away"),
        ("if (x)\n\t\twritev(fd, iov,\n\t\t       2);", "thrown away"),
        ("if (XTS(xts_recv(s, data, n, 0)) < 0)\n\t\tbreak;", "compared with zero only"),
        ("if (real()->sendmsg(fd, &m, f(0)) < 0)\n\t\treturn;", "compared with zero only"),
        ("ok = ok && SSL_write(ssl, data, n) > 0;", "compared with zero only"),
        ("size_t written;\n\n\tr = SSL_write_ex(ssl, data, n, &written);\n\treturn r;", "written is not read"),
        ("int a, n = 0;\n\n\tif (SSL_read_ex(ssl, d, 1, &n) != 1)\n\t\treturn 1;", "n is not read"),
        ("ulp_write_below(l, iov, 1, NULL);", "thrown away"),
    ],
)
def test_what_is_found(statement: str, how: str) -> None:
    (one,) = passed_over(f"static int f(void)\n{{\n\t{statement}\n}}\n")
    assert one.how == how


@pytest.mark.parametrize(
    "statement",
    [
        "n = write(fd, data, n);",
        "ssize_t n = recv(fd, data, room, MSG_DONTWAIT);",
        "if (send(fd, &m, sizeof m, 0) != (ssize_t)sizeof m)\n\t\treturn;",
        "while ((n = read(fd, data, room)) > 0)\n\t\tdone += n;",
        "return real()->sendto(fd, data, n, f, a, l);",
        "size_t written;\n\n\tif (SSL_write_ex(ssl, data, n, &written) == 1)\n\t\tdone += written;",
        "return SSL_write_ex(ssl, data, n, out);",
        "/* send(fd, data, n); */",
        'puts("send(fd);");',
        "c->protocol->write(l, iov, 1, NULL);",
    ],
)
def test_what_is_right(statement: str) -> None:
    assert list(passed_over(f"static int f(void)\n{{\n\t{statement}\n}}\n")) == []


def test_definitions_are_no_calls() -> None:
    assert list(passed_over("EXPORT ssize_t write(int fd, const void *data, size_t bytes)\n{\n\treturn 1;\n}\n")) == []
    assert list(passed_over("ssize_t ulp_write_below(struct ulp_layer *l);\n")) == []
