"""Side-by-side measurements: XTS over afxdp and shm, direct kernel TCP, and TCP through HAProxy
(`./tests/bench/run`)."""
