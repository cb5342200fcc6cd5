"""Options that join and leave groups, on a socket that is not decided yet: every call has an effect, and the interface
that they name may be one of the device."""

from __future__ import annotations

import errno
from socket import IP_MULTICAST_IF, IPPROTO_IP, IPPROTO_IPV6, IPV6_MULTICAST_IF
from typing import Any

#: linux/in.h, linux/in6.h: IP_ADD_MEMBERSHIP to IP_MSFILTER, MCAST_JOIN_GROUP to MCAST_MSFILTER.
_PROTOCOL_INDEPENDENT = range(42, 49)
_OPTIONS = {IPPROTO_IP: {*range(35, 42), *_PROTOCOL_INDEPENDENT}, IPPROTO_IPV6: {20, 21, *_PROTOCOL_INDEPENDENT}}

_JOINS = {35, 39, 20, 42, 46}
_INTERFACES = ((IPPROTO_IP, IP_MULTICAST_IF), (IPPROTO_IPV6, IPV6_MULTICAST_IF))


def is_membership(arguments: tuple[Any, ...]) -> bool:
    """Are these the arguments of a setsockopt() for groups?"""
    return len(arguments) > 1 and arguments[1] in _OPTIONS.get(arguments[0], ())


def may_be_of_device(arguments: tuple[Any, ...], failure: OSError, before: OSError | None) -> bool:
    """This host's kernel has refused the option, and `before` an earlier one: could the device's kernel accept it?"""
    if arguments[:2] in _INTERFACES:
        return failure.errno in (errno.ENODEV, errno.EADDRNOTAVAIL)
    if not is_membership(arguments):
        return False
    if before is not None:
        return failure.errno in (errno.ENODEV, errno.EADDRNOTAVAIL)
    return failure.errno == errno.ENODEV and arguments[1] in _JOINS
