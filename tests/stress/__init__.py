"""Stress of sockets, flow control and closing: many connections that do everything at once, every byte
checked."""
