"""XDP programs, their loading, and tools on bcc."""

from xts_messages.version import __version__ as __version__
