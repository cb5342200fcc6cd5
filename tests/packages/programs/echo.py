"""A server that answers with what it gets. Part of test_upgrade_in_service.py."""

import socketserver
import sys


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


with Server(("", int(sys.argv[1])), Echo) as server:
    print("up", flush=True)
    server.serve_forever()
