"""What tests/run is made of: which tests, how many at a time, how far it is, and how it ended."""
