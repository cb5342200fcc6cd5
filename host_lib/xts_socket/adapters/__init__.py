"""Well-known libraries over offloaded sockets, each through its own public extension points: no rules are asked, every
connection is offloaded. The libraries are optional (`pip install xts-offload[adapters]`)."""
