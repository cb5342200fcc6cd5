"""A connect that succeeds at once, a protocol on it, and no room in epoll: prints how CONNECT is answered.

A seccomp filter makes connect(2) return 0 and EPOLL_CTL_ADD fail with ENOSPC, as it does at fs.epoll.max_user_watches.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from beds.scripted_host import WINDOW, Worker
from beds.worker import FEATURES, LOOPBACK
from xts_messages.wire.codec import Endpoint

#: connect, epoll_ctl and seccomp
NUMBERS = {"x86_64": (42, 233, 317), "aarch64": (203, 21, 277)}
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _SECOND_ARGUMENT_AT = 0, 24
_EPOLL_CTL_ADD = 1
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1


def _statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def install() -> None:
    """For all threads."""
    connect, epoll_ctl, seccomp = NUMBERS[platform.machine()]
    code = _statement(_LOAD, _NUMBER_AT)
    code += _statement(_JUMP_EQUAL, connect, 0, 1) + _statement(_RETURN, _ERRNO)
    code += _statement(_JUMP_EQUAL, epoll_ctl, 0, 3) + _statement(_LOAD, _SECOND_ARGUMENT_AT)
    code += _statement(_JUMP_EQUAL, _EPOLL_CTL_ADD, 0, 1) + _statement(_RETURN, _ERRNO | errno.ENOSPC)
    code += _statement(_RETURN, _ALLOW)
    libc = ctypes.CDLL(None, use_errno=True)
    text = ctypes.create_string_buffer(code)
    fprog = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(text))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(seccomp, _SET_MODE_FILTER, _FLAG_TSYNC, fprog):
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    with Worker() as worker, worker.attach(features=FEATURES) as host:
        host.open()
        number = host.new_socket()
        id = host.push("TLS", number=number, message=False, role=1, verify=0).fields["proxy_id"]
        install()
        peer = Endpoint.of(LOOPBACK, 9)
        host.send("XTS_CMD_CONNECT", id=id, xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
        ack = host.expect("XTS_REPLY_CONNECT_ACK")
        print(["idle", "connecting", "established", "listener", "closing", "failed"][worker.connection().state])
        print(errno.errorcode[ack.error])


if __name__ == "__main__":
    main()
