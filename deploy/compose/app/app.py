"""Ten lines in the place of your app: says what arrives, and that it took it."""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class App(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        print(self.headers["Hooksluice-Source"], self.headers["Hooksluice-Event-Id"], len(body), "bytes")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


ThreadingHTTPServer(("", 3000), App).serve_forever()
