"""A hub on the loopback: requests of huggingface_hub, answered as the public hub answers them.

Two servers, as there: the hub lists and redirects, a second one (the content network) has the
bytes of files under LFS. Xet is off: no answer carries its headers. What networks and hubs do to a
pull on a bad day is asked for by `Behaviour`.
"""

import contextlib
import hashlib
import json
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SO_LINGER, SO_SNDBUF, SOL_SOCKET
from urllib.parse import parse_qs, quote, unquote, urlsplit

PIECE_BYTES = 4096
SEND_BUFFER = 16384
PAGE_ENTRIES = 5
LFS_SUFFIXES = (".safetensors", "tokenizer.json")
MISSING = (404, "RepoNotFound", "Repository not found")
UNAUTHORIZED = (401, "RepoNotFound", "Invalid username or password.")
BAD_TOKEN = (401, None, "Invalid credentials in Authorization header")
GATED = (403, "GatedRepo", "Access to this model is restricted")
NO_REVISION = (404, "RevisionNotFound", "Invalid rev id")
NO_ENTRY = (404, "EntryNotFound", "Entry not found")


class CutError(Exception):
    """The connection ends here, in the middle of a body: closed, or reset."""

    def __init__(self, resets=False):
        super().__init__()
        self.resets = resets


@dataclass
class Repository:
    """A model at one commit: names and contents of its files, and who may read them."""

    files: dict[str, bytes]
    commit: str
    branches: Sequence[str] = ("main",)
    token: str | None = None
    is_gated: bool = False
    listed: dict[str, bytes] = field(default_factory=dict)

    def entry(self, path):
        """A row of the tree: git's digest of the blob, and SHA-256 where it is under LFS."""
        content = self.listed.get(path, self.files[path])
        row = {"type": "file", "oid": git_digest(content), "size": len(content), "path": path}
        if path.endswith(LFS_SUFFIXES):
            oid = hashlib.sha256(content).hexdigest()
            row["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 134}
        return row

    def rows(self):
        folder = {"type": "directory", "oid": git_digest(b""), "size": 0, "path": "figures"}
        return [folder, *map(self.entry, self.files)]


@dataclass
class Behaviour:
    """What happens to bodies: `before_piece` is told each number of bytes sent so far in all."""

    before_piece: Callable[[int], None] = lambda _: None
    obeys_ranges: bool = True
    statuses: list[int] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    answers: Callable | None = None


class LoopbackHub:
    """Both servers, each on a port that the system gave."""

    def __init__(self):
        self.repositories, self.behaviour = {}, Behaviour()
        self.lock, self.bytes_sent = threading.Lock(), 0
        self.asked, self.content_tokens = Counter(), []
        self.hub = serve(partial(HubHandler, self))
        self.content = serve(partial(ContentHandler, self))
        self.endpoint = f"http://127.0.0.1:{self.hub.server_port}"
        self.content_address = f"http://127.0.0.1:{self.content.server_port}"

    def reset(self):
        self.behaviour, self.bytes_sent = Behaviour(), 0
        self.asked, self.content_tokens = Counter(), []

    def count(self, size):
        with self.lock:
            self.bytes_sent += size
            return self.bytes_sent

    def close(self):
        for server in (self.hub, self.content):
            server.shutdown()
            server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request, client_address):
        del request, client_address


def serve(handler):
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, owner, *arguments):
        self.owner = owner
        super().__init__(*arguments)

    def setup(self):
        self.request.setsockopt(SOL_SOCKET, SO_SNDBUF, SEND_BUFFER)
        super().setup()

    def log_message(self, *arguments):
        del arguments

    def do_HEAD(self):
        self.do_GET()

    def send_headers(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def send_json(self, value, **headers):
        body = json.dumps(value).encode()
        self.send_headers(200, Content_Type="application/json", Content_Length=len(body), **headers)
        self.wfile.write(body)

    def refuse(self, status, code, message):
        body = json.dumps({"error": message}).encode()
        codes = {"X_Error_Code": code} if code else {}
        self.send_headers(
            status, **codes, X_Error_Message=message, Content_Length=len(body), Connection="close"
        )
        self.wfile.write(body)

    def send_content(self, content, **headers):
        """Answer with a body, or with the range of it that is asked for, in small pieces."""
        start, status = 0, 200
        wanted = self.headers.get("Range")
        if wanted and self.owner.behaviour.obeys_ranges:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        left = content[start:]
        self.send_headers(status, Content_Length=len(left), Accept_Ranges="bytes", **headers)
        try:
            for begin in range(0, len(left) * (self.command != "HEAD"), PIECE_BYTES):
                self.owner.behaviour.before_piece(self.owner.bytes_sent)
                piece = left[begin : begin + PIECE_BYTES]
                self.owner.count(len(piece))
                self.wfile.write(piece)
        except CutError as cut:
            self.close_connection = True
            if cut.resets:
                self.request.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))


class HubHandler(Handler):
    def do_GET(self):
        address = urlsplit(self.path)
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        self.owner.asked[parts[0] if parts[0] != "api" else parts[1]] += 1
        if self.owner.behaviour.answers:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.owner.behaviour.answers(self)
        elif self.path in self.owner.behaviour.bodies:
            body = self.owner.behaviour.bodies[self.path]
            self.send_headers(200, Content_Length=len(body))
            self.wfile.write(body)
        elif parts[:2] == ["api", "models"]:
            self.answer_api("/".join(parts[2:4]), parts[4:], parse_qs(address.query))
        elif parts[:2] == ["api", "resolve-cache"]:
            self.answer_file("/".join(parts[3:5]), parts[5], parts[6])
        elif parts[2:3] == ["resolve"]:
            self.answer_resolve("/".join(parts[:2]), parts[3], parts[4])
        else:
            self.refuse(*NO_ENTRY)

    def readable(self, name):
        """The repository, or None after a refusal in the hub's words."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        found = self.owner.repositories.get(name)
        if token == "wrong":
            self.refuse(*BAD_TOKEN)
        elif found is None or (found.token and found.token != token):
            self.refuse(*(MISSING if token else UNAUTHORIZED))
        else:
            return found
        return None

    def answer_api(self, name, rest, query):
        found = self.readable(name)
        if found is None:
            return
        if rest[1] not in (*found.branches, found.commit):
            self.refuse(*NO_REVISION)
        elif rest[0] == "revision":
            self.send_json({"id": name, "modelId": name, "sha": found.commit, "private": False})
        else:
            self.send_page(name, found, int(query.get("cursor", ["0"])[0]))

    def send_page(self, name, found, cursor):
        rows, end = found.rows(), cursor + PAGE_ENTRIES
        path = f"{self.owner.endpoint}/api/models/{name}/tree/{found.commit}?cursor={end}"
        links = {"Link": f'<{path}>; rel="next"'} if end < len(rows) else {}
        self.send_json(rows[cursor:end], **links)

    def answer_resolve(self, name, revision, path):
        found = self.readable(name)
        if found is None:
            return
        statuses = self.owner.behaviour.statuses
        if found.is_gated:
            self.refuse(*GATED)
        elif statuses:
            self.refuse(statuses.pop(), None, "try again")
        elif revision != found.commit or path not in found.files:
            self.refuse(*NO_ENTRY)
        elif path.endswith(LFS_SUFFIXES):
            entry = found.entry(path)["lfs"]
            linked = {"X_Linked_Etag": f'"{entry["oid"]}"', "X_Linked_Size": entry["size"]}
            to = f"{self.owner.content_address}/{quote(name, safe='')}/{path}?X-Amz-Expires=3600"
            self.redirect(302, to, X_Repo_Commit=found.commit, **linked)
        else:
            to = f"/api/resolve-cache/models/{name}/{found.commit}/{path}"
            self.redirect(307, to, X_Repo_Commit=found.commit)

    def redirect(self, status, location, **headers):
        self.send_headers(status, Location=location, Content_Length=0, **headers)

    def answer_file(self, name, commit, path):
        found = self.readable(name)
        if found:
            etag = f'"{found.entry(path)["oid"]}"'
            self.send_content(found.files[path], ETag=etag, X_Repo_Commit=commit)


class ContentHandler(Handler):
    def do_GET(self):
        name, path = (unquote(part) for part in urlsplit(self.path).path.strip("/").split("/"))
        self.owner.content_tokens.append(self.headers.get("Authorization"))
        self.send_content(self.owner.repositories[name].files[path])


def git_digest(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
