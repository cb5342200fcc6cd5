"""The user of the agent's unprivileged process."""

from __future__ import annotations

import errno
import os
import pwd

from xts_messages.services import privilege

#: The users for the unprivileged process when root has started it and the configuration names none; the first that
#: exists is taken.
USERS = ("xts-agent", "nobody")


def find_user(name: str) -> pwd.struct_passwd | None:
    """The user to become: that of this name; without a name, if root has started us, one of USERS. None: keep the
    present user. OSError ENOENT: there is no such user."""
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
