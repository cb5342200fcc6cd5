"""XDP-Transport messages: the wire table, what is generated from it, and the native message core."""

from .version import __version__ as __version__
