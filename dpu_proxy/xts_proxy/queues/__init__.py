"""Where channels come from: queues over an interface, or shared memory."""
