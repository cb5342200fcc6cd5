"""The agent: opens AF_XDP queues for processes that have no privilege to, and looks after them."""
