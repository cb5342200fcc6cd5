"""The device's interfaces and routes, as its kernel tells."""
