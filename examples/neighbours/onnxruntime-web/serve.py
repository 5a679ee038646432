"""Serve this page with the headers that threads in WebAssembly need. Run: python serve.py SITE [--port 8080]

SITE is a folder with `node_modules`, where onnxruntime-web is installed, and `models`.
"""

import argparse
import http.server
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = {"/": "index.html", "/index.html": "index.html", "/page.js": "page.js"}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the page from here and everything else from the site."""

    # Browsers refuse modules and compile WebAssembly while it arrives by these types only.
    extensions_map = {  # noqa: RUF012  (the base class's own way)
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".js": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
    }

    def translate_path(self, path: str) -> str:
        name = PAGE.get(path.partition("?")[0])
        return str(HERE / name) if name else super().translate_path(path)

    def end_headers(self) -> None:
        # Both together isolate the page, which gives it SharedArrayBuffer, which threads need.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the page tells what went wrong."""


def make_server(site: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server on this machine only; port 0 takes a free one, which `server_port` names."""
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(site)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the page of onnxruntime-web")
    parser.add_argument("site", type=Path)
    parser.add_argument("--port", type=int, default=8080)
    arguments = parser.parse_args()
    with make_server(arguments.site, arguments.port) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
