"""What a network interface of the device does for the proxy, by whichever back end can: a card through verbs, the
kernel, XDP, or software of the proxy itself."""
