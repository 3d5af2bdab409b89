"""The server: it answers this machine's browser alone, and only addresses with its token."""

import gzip
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from traceback import print_exc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradscope.view.pages import Keys, Pages

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
"""Host names that lead here. The port may be another one: that of a tunnel."""

_POLL, _LEAST, _SHARE, _BEAT = 0.5, 2.0, 0.1, 15.0
"""Seconds between two reads of the files, and between two messages at least; share of the time in
which a page is rendered; and seconds after which a connection is tried."""

# No other page may frame these, keep hold of their windows, read them as data, or learn their
# addresses, which contain the token.
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
_SMALLEST = 2_000
"""Bytes from which on an answer is compressed."""


_KEY = re.compile(r"[0-9a-f]{16}")


def is_key(text: str) -> bool:
    """Return whether a text may be the key of a recording."""
    return _KEY.fullmatch(text) is not None


class ViewServer(ThreadingHTTPServer):
    """Serves pages until it is shut down.

    Args:
        pages: Returns the pages. It is called for the first time by the first request.
        port: Port to listen on; 0 for any free one.

    Raises:
        OSError: The port is taken.
    """

    # Every open page keeps a connection, and its thread must not keep the process alive.
    daemon_threads = True
    block_on_close = False
    # Otherwise the system keeps the port for a minute after a server has ended.
    allow_reuse_address = True

    def __init__(self, pages: "Callable[[], Pages]", port: int = 0) -> None:
        super().__init__((HOST, port), Handler)
        self._make = pages
        self._making = threading.Lock()
        self.token = secrets.token_urlsafe(24)
        self.viewed: list[Keys] = []
        """Pages that somebody looks at."""
        self.is_over = threading.Event()

    @cached_property
    def _pages(self) -> "Pages":
        return self._make()

    @property
    def pages(self) -> "Pages":
        """The pages; their modules are imported with the first."""
        # `cached_property` takes no lock: two requests would make two.
        with self._making:
            return self._pages

    @property
    def address(self) -> str:
        """Address of the list of recordings."""
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def shutdown(self) -> None:
        """Stop serving, and end the messages to open pages."""
        self.is_over.set()
        super().shutdown()

    def handle_error(self, request: object, client_address: object) -> None:
        """Report an error, unless a browser has just closed its connection."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            print_exc(file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: ViewServer
    # HTTP/1.0, the default, needs a connection for every request.
    protocol_version = "HTTP/1.1"
    # Browsers keep connections open that they do not use any more.
    timeout = 60
    # By default, every answer names the version of Python.
    server_version, sys_version = "gradscope", ""

    def do_GET(self) -> None:
        """Answer with a page, plotly's script or messages; with nothing to a stranger."""
        token, *parts = self.path.partition("?")[0].removeprefix("/").split("/")
        # It takes as long for every wrong token, so none is guessed by parts. Texts that are not
        # ASCII raise, bytes do not.
        is_known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if not (is_known and parts and self._is_allowed()):
            self._answer(HTTPStatus.NOT_FOUND)
            return
        kind, *keys = parts
        # Nothing else of an address is ever used, or sent back.
        are_keys = all(map(is_key, keys))
        match kind, len(keys):
            case "", 0:
                self._list()
            case "plotly.js", 0:
                from gradscope.report.html.page import plotly_script

                self._answer(HTTPStatus.OK, plotly_script(), "text/javascript", is_kept=True)
            case ("r", 1) | ("c", 2) if are_keys:
                self._page(tuple(keys))
            case "events", 0 | 1 | 2 if are_keys:
                self._tell(tuple(keys))
            case _:
                self._answer(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        """Answer as to GET, without the content."""
        self.do_GET()

    def _is_allowed(self) -> bool:
        """Return whether a request comes from this server's own pages, or from the address bar.

        A page of another site may send requests here, under the name of that site: its host, its
        origin, or what the browser tells of it gives it away.
        """
        host = self.headers.get("Host", "")
        if host.partition(":")[0] not in _NAMES:
            return False
        if self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            return False
        site = self.headers.get("Sec-Fetch-Site", "none")
        # A link on another page may be followed: that page cannot read the answer.
        is_opened = (
            self.headers.get("Sec-Fetch-Mode") == "navigate"
            and self.headers.get("Sec-Fetch-Dest") == "document"
        )
        return site in ("none", "same-origin") or is_opened

    def _list(self) -> None:
        single = self.server.pages.catalogue.library.single
        if single is None or "?" in self.path:
            self._page(())
            return
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", f"r/{single}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _page(self, keys: "Keys") -> None:
        try:
            answer = self.server.pages.page(keys)
        except Exception:  # noqa: BLE001 - the user is told, and other pages go on
            print_exc(file=sys.stderr)
            text = "This is a bug in gradscope. The terminal of gradscope view has the traceback."
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, text, "text/plain")
            return
        status = HTTPStatus.OK if answer.is_found else HTTPStatus.NOT_FOUND
        self._answer(status, answer.text, "text/html")

    def _answer(
        self, status: HTTPStatus, text: str = "", kind: str = "text/plain", *, is_kept: bool = False
    ) -> None:
        content = text.encode("utf-8", "replace")
        is_packed = len(content) > _SMALLEST and "gzip" in self.headers.get("Accept-Encoding", "")
        if is_packed:
            # The browser is on this machine: better compression takes longer than it saves.
            content = gzip.compress(content, 1)
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        for name, value in _HEADERS:
            is_cached = is_kept and name == "Cache-Control"
            self.send_header(name, "private, max-age=86400" if is_cached else value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _tell(self, keys: "Keys") -> None:
        """Send a message at first and whenever a page changes, as long as somebody listens."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        # Messages have no end, and so no length: the connection's end is theirs.
        self.send_header("Connection", "close")
        for name, value in _HEADERS:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        if self.command == "HEAD":
            return
        self.server.viewed.append(keys)
        try:
            self._send_changes(keys)
        finally:
            self.server.viewed.remove(keys)

    def _send_changes(self, keys: "Keys") -> None:
        pages = self.server.pages
        told, due, beat = "", 0.0, 0.0
        # The first message comes at once: the page may be outdated already.
        while not self.server.is_over.wait(_POLL if told else 0):
            now = time.monotonic()
            if now >= due and (stamp := pages.stamp(keys)) != told:
                told = stamp
                due = now + max(_LEAST, pages.seconds(keys) / _SHARE)
                self._send(f"data: {stamp}")
                beat = now
            elif now - beat >= _BEAT:
                # A browser skips a line that begins with a colon; that it can be sent shows that it
                # listens.
                self._send(":")
                beat = now

    def _send(self, text: str) -> None:
        self.wfile.write(f"{text}\n\n".encode())
        self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is none, or of another method, with nothing."""
        self.close_connection = True
        self.send_response(code, message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""
