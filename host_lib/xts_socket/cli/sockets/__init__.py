"""The offloaded sockets: what the host reports of them, what the device does, and both joined."""
