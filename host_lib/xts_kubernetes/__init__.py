"""XTS on a node of Kubernetes: the device plug-in, and which pod is behind a process (`xts-device-plugin --help`)."""
