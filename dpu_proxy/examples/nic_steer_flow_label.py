"""Gives packets with a flow label of IPv6 to a CPU, and counts them there, until its standard input ends.

On the device, as root: python nic_steer_flow_label.py INTERFACE LABEL CPU. A proxy does the same by [[steer]].
"""

import sys

from xts_bpf.classes import Classes, ClassRule, Kind

if len(sys.argv) != 4:
    sys.exit("usage: python nic_steer_flow_label.py INTERFACE LABEL CPU")
interface, value, cpu = sys.argv[1], int(sys.argv[2], 0), int(sys.argv[3])
with Classes(interface, [ClassRule(Kind.FLOW_LABEL, value, cpu)]) as classes:
    print(f"packets of {interface} with {value:#x} go to CPU {cpu}", flush=True)
    sys.stdin.read()
    for where, count in classes.frames(0).items():
        print(f"{count} frames on CPU {where}")
