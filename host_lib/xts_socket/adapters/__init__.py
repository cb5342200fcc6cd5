"""Well-known libraries over offloaded sockets, each by its own public extension points: no rules are asked, every
connection is offloaded. The libraries are optional (`pip install xts-offload[adapters]`)."""
