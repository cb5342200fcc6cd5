"""Messages and records: the tables that declare them, and a codec."""
