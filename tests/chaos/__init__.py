"""Everything at once, by a seed: upgrades, crashes, stops, flaps and limits while programs run, and what they see.

**Loads** (loads.py, programs/) are ordinary programs, some on the host with their sockets offloaded, some in the
network. Each checks every byte it gets, and says when it got on, when a call failed, and when something was wrong.

**Disturbances** (disturbances.py) are a table. Each says what programs may notice of it: nothing; that connections end;
that new ones fail. A plan (plan.py) is a list of them that depends on the seed only: a run that failed is run again by
its seed.

**The oracle** (oracle.py) compares the two. A wrong byte, a stream that ends early as if that were its end, and a
program that ends are never allowed. A call may fail only during a disturbance that allows it, with an errno that a
socket has for that. After each disturbance every load gets on again within a time. At the end the processes that are
still the same have no more descriptors than at the beginning.
"""
