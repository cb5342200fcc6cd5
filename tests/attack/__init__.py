"""Attacks on a proxy, measured by what a well-behaved bystander notices: see ./tests/attack/run --help.

Theory of operation. One proxy with one worker has the device's core to itself. On the other core run the bystander, a
process with a queue of its own that asks 64 bytes of an echo server every millisecond, and the parts of the attack.
Bystander and echo server go first there (SCHED_FIFO), so that what is measured is what the proxy makes of the attack,
not what the attacker takes of the bystander's core. Rounds without and with the attack alternate. A latency counts from
when its request was due, so that a stall is seen by all requests that fell into it, not by one.
"""
