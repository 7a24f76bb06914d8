"""A server of OpenAI's chat interface whose answers are bytes that a test wrote."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
END = b"data: [DONE]\n\n"


def refusal(status, message):
    body = json.dumps({"error": {"message": message}}).encode()
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def event(delta, reason=None):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode()


def stream(*deltas, reason="stop"):
    return HEAD + b"".join(map(event, deltas)) + event({}, reason) + END


@contextmanager
def serving(*answers, holds=False):
    """Answer the next questions with these bytes; gives the URL and the list of bodies asked.

    holds: no answer ends before the server does.
    """
    left, bodies, is_over = list(answers), [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            models = json.dumps({"data": [{"id": "prepared"}]}).encode()
            self.wfile.write(HEAD + models)

        def do_POST(self):
            size = int(self.headers["Content-Length"])
            bodies.append(json.loads(self.rfile.read(size)))
            self.wfile.write(left.pop(0))
            if holds:
                is_over.wait()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()
