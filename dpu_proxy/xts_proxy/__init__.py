"""The offload proxy."""

from xts_messages.version import __version__ as __version__

from xts_proxy._native import lib

#: OpenSSL's memory is wiped when it is freed. To be asked for before anything of OpenSSL is in use, and asyncio uses
#: ssl: therefore here. False in a process, not the proxy's own, that had it before.
WIPES_MEMORY = bool(lib.xts_tls_wipe_memory())
