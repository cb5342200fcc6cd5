"""The agent: opens AF_XDP queues for processes that have no privilege to, and looks after them."""

from xts_messages.version import __version__ as __version__
