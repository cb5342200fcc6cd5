"""The proxy's metrics, and the process that serves them."""
