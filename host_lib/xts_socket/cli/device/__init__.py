"""What the offload proxy says of its device, and the agent of its interfaces."""
