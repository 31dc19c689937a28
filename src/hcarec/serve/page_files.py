"""The page's own files, read once at the start: nothing else is ever served, and no path of a request reaches the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
"""What may be part of a page, by its ending; other files of the folder are left out."""
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class PageFile(NamedTuple):
    """A file of the page, and the tag that changes with its content."""

    content: bytes
    kind: bytes
    tag: bytes

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """What is sent with it: a browser asks each time whether it has changed."""
        return (b"content-security-policy", POLICY), (b"cache-control", b"no-cache"), (b"etag", self.tag)

    def unchanged(self, known: bytes) -> bool:
        """Say whether one of the tags in an If-None-Match header is that of this file."""
        tags = [tag.strip().removeprefix(b"W/") for tag in known.split(b",")]
        return self.tag in tags or b"*" in tags


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Read all files of a page, by their path below the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in KINDS and path.is_file():
            content = path.read_bytes()
            tag = b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode()
            found[path.relative_to(folder).as_posix()] = PageFile(content, KINDS[path.suffix].encode(), tag)
    return found
