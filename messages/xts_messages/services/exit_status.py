"""Exit statuses of the services: is it worth starting one again?

A service manager starts a service again that has ended with FAILED: the reason may have passed by then. With MISTAKE it
stays until somebody changes something, so the units do not start it again (RestartPreventExitStatus), and the reason
stays the last thing that the service has said.
"""

from __future__ import annotations

import errno

from xts_messages.services.service_manager import manager

FAILED = 1
#: argparse ends a program with the same status for a wrong command line.
MISTAKE = 2
EPILOG = f"""\
exit status: 0; {MISTAKE} for a mistake in the command line or the configuration, or for something else that stays until
somebody changes it, such as a socket that another service serves: systemd does not start the service again;
{FAILED} for any other failure
"""
#: What prevents a start and does not pass by itself: a name that is wrong, a file that is missing or may not be opened,
#: a socket that another service serves, what the kernel does not have. Not ENODEV: an interface may come later.
_STAYS = frozenset(
    {
        *(errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENOTSOCK, errno.ENAMETOOLONG),
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EROFS),
        *(errno.EACCES, errno.EPERM, errno.EINVAL),
        *(errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENOSYS),
    }
)


def of_start(error: OSError) -> int:
    """The status of a service that this error has kept from starting."""
    return MISTAKE if error.errno in _STAYS else FAILED


def tell(reason: str) -> None:
    """Shows the service manager why the service ends: `systemctl status` has it in a line of its own, which stays."""
    manager().notify(f"STATUS={' '.join(reason.split())}")
