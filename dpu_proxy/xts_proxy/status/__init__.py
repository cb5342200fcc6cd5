"""What a running proxy says of itself: the control socket, status, the log of connections."""
