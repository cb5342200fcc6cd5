"""The offload proxy."""

from xts_messages.version import __version__ as __version__

from xts_proxy._native import lib

#: Whether OpenSSL's memory is wiped when it is freed. This must be requested before anything in OpenSSL is used, and
#: asyncio imports ssl, so it is done here. False in a process, not the proxy's own, that used OpenSSL before.
WIPES_MEMORY = bool(lib.xts_tls_wipe_memory())
