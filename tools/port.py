"""Says in one sentence, and exits 1, if JupyterLab could not listen on a port: port.py PORT."""

import socket
import sys


def trouble(port: str) -> str | None:
    """Why 127.0.0.1:port is of no use, or None if it is free."""
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        return f"PORT must be a number from 1 to 65535, not '{port}': type 'make lab PORT=8888'."
    with socket.socket() as server:
        # As the server itself does: a port in TIME_WAIT is free.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", int(port)))
        except PermissionError:
            return f"Port {port} needs root: type 'make lab PORT=8888'."
        except OSError:
            other = int(port) % 65535 + 1
            return f"Port {port} is taken by another program: type 'make lab PORT={other}'."
    return None


if __name__ == "__main__":
    sys.exit(trouble(sys.argv[1]))
