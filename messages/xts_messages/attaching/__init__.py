"""Attaching: how a process gets its queue, and what the server knows of it."""
