"""Queues of frames: opening them, by kind."""
