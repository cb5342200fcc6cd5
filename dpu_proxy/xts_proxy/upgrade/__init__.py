"""A new proxy takes the place of a running one."""
