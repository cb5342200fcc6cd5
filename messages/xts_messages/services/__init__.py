"""What all services have in common: their start, their log, their privileges."""
