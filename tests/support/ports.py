"""Free ports for processes that communicate."""

import socket


def free_port():
    """A free port of this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
