"""Settings of XLIO and VMA, and what they are here."""
