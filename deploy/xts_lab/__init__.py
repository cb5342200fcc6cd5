"""The test-bed: a host, a device and a network in namespaces of this machine."""

from xts_messages.version import __version__ as __version__
