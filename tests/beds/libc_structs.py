"""Structures of the C library's calls, for test programs that make these through ctypes."""

from __future__ import annotations

import ctypes


class PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class EpollEvent(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


class Vector(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Header(ctypes.Structure):
    """struct msghdr"""

    _fields_ = (
        ("name", ctypes.c_void_p), ("name_bytes", ctypes.c_uint32), ("vectors", ctypes.POINTER(Vector)),
        ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )  # fmt: skip


class Message(ctypes.Structure):
    """struct mmsghdr"""

    _fields_ = (("header", Header), ("bytes", ctypes.c_uint32))
