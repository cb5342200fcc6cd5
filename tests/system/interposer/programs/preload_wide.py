"""Streams for wide characters on sockets. The locale of the scripts may be any: they set their own."""

from __future__ import annotations

import ctypes
import locale
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from beds.scripts import script
from system.interposer.programs.interposed import LIBC, drain, pair

WEOF = 0xFFFFFFFF
TEXT = "größe 日本 🎈\n"


@contextmanager
def wide_stream(mode: bytes = b"r+") -> Iterator[tuple[ctypes.c_void_p, socket.socket]]:
    """A stream on one end of a connection, and the other end."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    for name in ("fgetwc", "getwc", "fputwc", "putwc", "ungetwc", "fgetwc_unlocked", "fputwc_unlocked"):
        getattr(LIBC, name).restype = ctypes.c_uint
    for name in ("fdopen", "fgetws", "fgetws_unlocked", "__fgetws_chk"):
        getattr(LIBC, name).restype = ctypes.c_void_p
    client, server = pair()
    with server:
        stream = ctypes.c_void_p(LIBC.fdopen(client.detach(), mode))
        assert stream.value
        yield stream, server
        assert LIBC.fclose(stream) == 0
    locale.setlocale(locale.LC_CTYPE, before)


@script("as the kernel")
def wide_characters_are_written() -> None:
    with wide_stream() as (stream, server):
        assert LIBC.fwide(stream, 0) == 0
        assert LIBC.fputws(TEXT, stream) == 1
        assert LIBC.fwide(stream, 0) > 0
        assert LIBC.fwide(stream, -1) > 0
        assert LIBC.fputwc(ord("日"), stream) == ord("日")
        assert LIBC.fputwc_unlocked(ord("x"), stream) == ord("x")
        assert LIBC.fputws_unlocked("本\n", stream) == 1
        assert LIBC.fwprintf(stream, "%5d|%-4ls|%s\n", 42, "本", "ü".encode()) == 13
        assert LIBC.__fwprintf_chk(stream, 1, "%ls\n", "ß" * 2000) == 2001
        assert LIBC.fflush(stream) == 0
        expected = (TEXT + "日x本\n" + "   42|本   |ü\n" + "ß" * 2000 + "\n").encode()
        assert server.recv(len(expected), socket.MSG_WAITALL) == expected


@script("as the kernel")
def wide_characters_are_read() -> None:
    line = ctypes.create_unicode_buffer(50)
    word, other = ctypes.create_unicode_buffer(20), ctypes.create_string_buffer(20)
    number = ctypes.c_int()
    with wide_stream() as (stream, server):
        server.sendall(TEXT.encode() + "wort 17 übel x\n".encode() + b"one\ntwo\nbad\xff\nend")
        server.shutdown(socket.SHUT_WR)
        assert LIBC.fgetws(line, 50, stream)
        assert line.value == TEXT
        assert LIBC.fgetwc(stream) == ord("w")
        assert LIBC.ungetwc(ord("ß"), stream) == ord("ß")
        assert LIBC.fwscanf(stream, "%ls %d %s x\n", word, ctypes.byref(number), other) == 3
        assert (word.value, number.value, other.value.decode()) == ("ßort", 17, "übel")
        assert LIBC.fgetws(line, 3, stream)
        assert line.value == "on"
        assert LIBC.fgetws_unlocked(line, 50, stream)
        assert line.value == "e\n"
        assert LIBC.__fgetws_chk(line, 50, 50, stream)
        assert line.value == "two\n"
        assert not LIBC.fgetws(line, 0, stream)
        assert LIBC.fgetws(line, 1, stream)
        assert line.value == ""
        assert [LIBC.fgetwc_unlocked(stream) for _ in range(3)] == list(b"bad")
        assert LIBC.fgetwc(stream) == WEOF
        assert LIBC.ferror(stream)


@script("as the kernel")
def a_wide_stream_ends() -> None:
    line = ctypes.create_unicode_buffer(50)
    with wide_stream(b"r") as (stream, server):
        server.sendall("no newline ä".encode())
        server.shutdown(socket.SHUT_WR)
        assert LIBC.fgetws(line, 50, stream)
        assert line.value == "no newline ä"
        assert LIBC.getwc(stream) == WEOF
        assert LIBC.feof(stream)
        assert not LIBC.ferror(stream)
        assert not LIBC.fgetws(line, 50, stream)
    with wide_stream(b"r") as (stream, server):
        assert LIBC.fwide(stream, -1) < 0
        server.sendall(b"bytes\n")
        assert LIBC.fgetwc(stream) == WEOF
        assert LIBC.fputws(TEXT, stream) == -1
        assert LIBC.fgetc(stream) == ord("b")


@script("as the kernel")
def wide_standard_output_becomes_a_socket() -> None:
    client, server = pair()
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    before = os.dup(1)
    os.dup2(client.fileno(), 1)
    client.close()
    assert LIBC.wprintf("%ls, %d\n", "größer", 7) == 10
    LIBC.putwchar.restype = ctypes.c_uint
    assert LIBC.putwchar(ord("ü")) == ord("ü")
    assert LIBC.fflush(None) == 0
    os.dup2(before, 1)
    assert drain(server) == "größer, 7\nü".encode()
