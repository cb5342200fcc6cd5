"""The configuration file, and what is said of it."""
