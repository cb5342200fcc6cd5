"""The agent: opens AF_XDP queues for unprivileged processes, and manages them."""

from xts_messages.version import __version__ as __version__
