"""The private keys' process, and the files that TLS needs."""
