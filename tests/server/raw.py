"""HTTP over bare sockets, for what a well-behaved client never sends."""

import json
import socket
from urllib.parse import urlsplit

SMALL_BUFFER = 4096
JSON = "content-type: application/json"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def connect(server, timeout=60, receive_buffer=None):
    address = urlsplit(server.url)
    made = socket.socket()
    if receive_buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.settimeout(timeout)
    made.connect((address.hostname, address.port))
    return made


def head(path, *lines, method="POST", version="1.1"):
    """Return the bytes of a request's headers."""
    begin = f"{method} {path} HTTP/{version}"
    return "\r\n".join([begin, "host: localhost", *lines, "", ""]).encode()


def post(path, fields, *more, version="1.1"):
    body = json.dumps(fields).encode()
    lines = (JSON, f"content-length: {len(body)}", *more)
    return head(path, *lines, version=version) + body


def read_all(connection):
    """Return everything until the other side closes; a reset counts as a close."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def read_until(connection, wanted):
    data = b""
    while wanted not in data:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return data


def enter(connection, path, length):
    """Send the headers of a request, and return when the server has let it in and reads on."""
    connection.sendall(head(path, JSON, f"content-length: {length}", "expect: 100-continue"))
    assert read_until(connection, CONTINUE) == CONTINUE


def send_half_a_body(connection, path):
    enter(connection, path, 100)
    connection.sendall(b"{")
