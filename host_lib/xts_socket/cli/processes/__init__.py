"""Programs under the interposer, and the pages through which they are looked at and asked."""
