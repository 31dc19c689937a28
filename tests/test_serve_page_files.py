"""The page's files over HTTP: only those of the package, with a strict policy, and without a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hcarec import Pop, synthetic
from hcarec.serve.keys import make
from hcarec.serve.page_files import FOLDER, KINDS, POLICY, read_page
from http_server import Running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "parts").mkdir()
    for name, text in {"index.html": "<p>é</p>", "a.js": "1", "parts/b.css": "p{}", "icon.svg": "<svg/>", "notes.txt": "no", "secret.py": "no"}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def server(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("server")
    Pop().fit(synthetic(users=20, items=10)).save(place / "model")
    make(place / "keys.json", "read")
    with Running(place / "model", place / "store.sqlite", keys=place / "keys.json") as running:
        running.site.page = read_page(page)
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


@pytest.mark.parametrize(
    ("path", "content", "kind"), [("/", "<p>é</p>", "text/html"), ("/page/a.js", "1", "text/javascript"), ("/page/parts/b.css", "p{}", "text/css")]
)
def test_a_file_of_the_page_needs_no_key_and_brings_its_policy(client: httpx.Client, path: str, content: str, kind: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (200, content)
    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.headers["content-security-policy"] == POLICY.decode()
    assert "unsafe" not in POLICY.decode() and "default-src 'none'" in POLICY.decode()
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"], answer.headers["cache-control"]) == (
        "nosniff",
        "no-referrer",
        "no-cache",
    )
    assert client.head(path).headers["content-length"] == str(len(content.encode()))


def test_a_file_that_a_browser_holds_is_not_sent_again(client: httpx.Client) -> None:
    tag = client.get("/page/a.js").headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        answer = client.get("/page/a.js", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert "content-security-policy" in answer.headers
    assert client.get("/page/a.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.get("/", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "secret.py", "parts", "", "missing.js", "../secret.py", "..%2fpage%2fa.js", "%2e%2e/a.js", "/etc/passwd", "a.js%00", "a.js/", "A.JS", "%ff"],
)
def test_nothing_else_is_served(server: Running, name: str) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", server.port)) as plain:  # a client would tidy the path up
        plain.sendall(f"GET /page/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: plain.recv(65536), b""))
    assert answer.split()[1] in (b"404", b"400", b"422"), answer[:200]


def test_the_page_makes_ready_what_it_will_ask_for(client: httpx.Client, server: Running) -> None:
    service = server.site.service
    client.get("/")
    server.wait(service.search("anything"))  # in the same thread, so after it
    assert "names" in vars(service._live.serving)


def test_the_page_is_complete_in_the_package() -> None:
    files = read_page()
    present = [path for path in FOLDER.rglob("*") if path.is_file() and not path.name.startswith((".", "__"))]
    assert "index.html" in files
    assert len(files) == len(present), "a file of the page has an ending that is not served"
    assert {path.suffix for path in present} <= set(KINDS)
