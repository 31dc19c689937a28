"""A local https server that behaves well or badly, as a test asks."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TLS = Path(__file__).with_name("tls")
HOST = "data.example"

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Server:
    """A running server: its answers by path, and the requests it got as (path, headers)."""

    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def url(self, path: str, host: str = HOST) -> str:
        return f"https://{host}:{self.port}{path}"

    def headers(self, name: str) -> list[str | None]:
        """Return a header of each request in turn."""
        return [headers.get(name) for _, headers in self.requests]


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Run a server on 127.0.0.1 until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.requests.append((self.path, dict(self.headers.items())))
            self.close_connection = True
            if self.path in server.answers:
                server.answers[self.path](self)
            else:
                self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
        http.socket = context.wrap_socket(http.socket, server_side=True)
        http.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up on purpose here
        server = Server(http.server_address[1])
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def trusting() -> ssl.SSLContext:
    """Make client settings that trust the test certificate and check it as ever."""
    return ssl.create_default_context(cafile=str(TLS / "cert.pem"))


def file(content: bytes, etag: str = '"one"', ranges: bool = True, break_after: int | None = None, breaks: int = 1) -> Answer:
    """Serve a file; the first `breaks` answers end after `break_after` bytes of their body."""
    left = [breaks if break_after is not None else 0]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        wanted, condition = handler.headers.get("Range"), handler.headers.get("If-Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if ranges and wanted and condition in (None, etag) else 0
        if start >= len(content) > 0:
            handler.send_response(416)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body = content[start:]
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", etag)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        if left[0]:
            left[0] -= 1
            body = body[:break_after]
        handler.wfile.write(body)

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Send without end and without saying how much."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    block = b"x" * 65536
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"%x\r\n" % len(block) + block + b"\r\n")


def redirect(location: str) -> Answer:
    """Send elsewhere."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer
