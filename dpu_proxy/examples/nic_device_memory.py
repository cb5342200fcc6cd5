"""Says whether a card has memory of its own for what is sent, by trying it: python nic_device_memory.py"""

from xts_proxy.nic.answer import Capability
from xts_proxy.nic.verbs import Verbs

for answer in Verbs().answers(""):
    if answer.capability is Capability.DEVICE_MEMORY:
        print(f"{answer.back_end}: {answer.limit or 'no device memory'}{answer.reason and f' ({answer.reason})'}")
