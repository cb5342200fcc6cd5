"""Whom the unprivileged process of the agent becomes."""

from __future__ import annotations

import errno
import os
import pwd

from xts_messages import privilege

#: Whom the unprivileged process becomes when root has started it and the configuration names nobody.
USERS = ("xts-agent", "nobody")


def find_user(name: str) -> pwd.struct_passwd | None:
    """Whom to become: the user of this name; without a name, when root has started us, one of USERS. None: nobody else.
    OSError ENOENT: there is none."""
    if name:
        return privilege.find_user(name)
    if os.geteuid() != 0:
        return None
    for candidate in USERS:
        try:
            return privilege.find_user(candidate)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, f"none of the users {', '.join(USERS)} exists: name one (--user)")
