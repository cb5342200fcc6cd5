"""Attacks on a proxy, measured by what a well-behaved bystander notices: see ./tests/attack/run --help.

Theory of operation. One proxy with one worker has the device's core to itself. On the other core run the bystander, a
process with a queue of its own that asks 64 bytes of an echo server every millisecond, and the parts of the attack.
Bystander and echo server go first there (SCHED_FIFO), so that what is measured is what the proxy makes of the attack,
not what the attacker takes of the bystander's core. Rounds without and with the attack alternate. A latency counts from
when its request was due, so that a stall is seen by all requests that fell into it, not by one.

There are two bystanders, half a pace apart: one of the attacker's own tenant, and, where we are root, one of another
tenant (another user). The control is the same attack on a second proxy, whose worker shares the device's core with the
first: what the bystanders notice then, the kernel's scheduler and the packets on that core have done, and no budget
of a worker can mend it.
"""
