"""Files that are made from the tables: `python -m xts_messages.generate`."""
