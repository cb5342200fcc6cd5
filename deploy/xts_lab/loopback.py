"""What a proxy's configuration needs when hosts use the device's loopback, as one machine is both host and device."""

#: It goes behind all other rules. Loopback and link-local addresses are denied unless a rule names them.
ALLOW_LOOPBACK = """
[[policy.rule]]
action = "allow"
network = "loopback"
"""
