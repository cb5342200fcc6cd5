"""The process that starts all others, and what it does while they run."""
