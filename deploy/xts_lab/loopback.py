"""What a proxy's configuration needs where its hosts reach the loopback of the device: one machine is both there."""

#: Behind all other rules. Loopback and link-local addresses are denied unless a rule allows them by name.
ALLOW_LOOPBACK = """
[[policy.rule]]
action = "allow"
network = "loopback"
"""
