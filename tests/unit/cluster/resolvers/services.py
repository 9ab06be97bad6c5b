"""Local fakes of the HTTP services that resolvers ask."""

import contextlib
import http.server
import json
import threading
import urllib.parse


class _Server(http.server.HTTPServer):
    def __init__(self, respond):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.asked: list[tuple] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def _answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        self.server.asked.append((self.command, parts.path, query, dict(self.headers)))
        status, value = self.server.respond(parts.path, query)
        text = value if isinstance(value, str) else json.dumps(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = _answer

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serve(respond):
    """Serves `respond(path, query) -> (status, value)` on loopback.

    Yields (base URL, list of what was asked: method, path, query, headers).
    """
    server = _Server(respond)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
