"""Opens an end as a user who may lock little memory, and prints why it cannot. Argument: the interface's number."""

from __future__ import annotations

import os
import resource
import sys

from xts_messages.queues.rdma import RdmaEnd, load

load()
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
os.setgid(65534)
os.setuid(65534)
try:
    RdmaEnd(int(sys.argv[1]))
except OSError as failure:
    print(failure)
