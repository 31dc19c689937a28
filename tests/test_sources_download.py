"""The downloader against a local server: what it refuses, what it resumes, what it leaves behind."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tls_server
from hcarec.data.sources import catalogue
from hcarec.data.sources.address import Address, Policy, is_public
from hcarec.data.sources.download import download
from hcarec.errors import DownloadError
from tls_server import HOST, Server

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
INNER = {"other.example": ["127.0.0.1"], "inner.example": ["10.0.0.7"]}


@pytest.fixture
def server() -> Iterator[Server]:
    with tls_server.serving() as running:
        yield running


def policy_for(server: Server) -> Policy:
    """The real policy, but for names that lead to the test server, its port, its certificate and its one address."""

    def permits(address: Address) -> bool:
        return str(address) == "127.0.0.1" or is_public(address)

    return Policy(
        hosts=frozenset({HOST, "other.example", "inner.example"}),
        port=server.port,
        permits=permits,
        resolve=lambda host, port: INNER.get(host, ["127.0.0.1"]),
        tls=tls_server.trusting,
        timeout=10,
    )


def fetch(server: Server, path: str, target: Path, policy: Policy | None = None, sha256: str = SHA256, size: int = len(CONTENT)) -> None:
    download(server.url(path), target, sha256, size, policy or policy_for(server))


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT)
    seen: list[tuple[str, int, int | None]] = []
    download(server.url("/f"), tmp_path / "f", SHA256, len(CONTENT), policy_for(server), lambda *step: seen.append(step))
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert left(tmp_path) == ["f"]
    assert seen[-1] == ("fetching f", len(CONTENT), len(CONTENT))


def test_a_wrong_hash_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT[:-1] + b"!")
    with pytest.raises(DownloadError, match="not the file that was expected"):
        fetch(server, "/f", tmp_path / "f")
    assert left(tmp_path) == []
    assert len(server.requests) == 1


def test_too_long_is_refused_by_its_announcement(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT)
    with pytest.raises(DownloadError, match=r"is 1,048,576 bytes long, expected were at most 1,000"):
        fetch(server, "/f", tmp_path / "f", size=1000)
    assert left(tmp_path) == []


def test_too_long_is_refused_when_it_is_not_announced(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.endless
    with pytest.raises(DownloadError, match="sends more than the 1,048,576 bytes"):
        fetch(server, "/f", tmp_path / "f")
    assert left(tmp_path) == []


def test_a_broken_transfer_is_carried_on(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT, break_after=300_000)
    fetch(server, "/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.headers("Range") == [None, "bytes=300000-"]
    assert server.headers("If-Range") == [None, '"one"']
    assert left(tmp_path) == ["f"]


def test_a_transfer_is_carried_on_by_a_later_call(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT, break_after=1000, breaks=3)
    with pytest.raises(DownloadError, match=r"broke off after 3,000 bytes \(the connection was closed early\)"):
        fetch(server, "/f", tmp_path / "f")
    assert not (tmp_path / "f").exists()
    fetch(server, "/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.headers("Range")[-1] == "bytes=3000-"


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT, ranges=False, break_after=300_000)
    fetch(server, "/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_file_that_changed_in_between_starts_again(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(b"old" * 100_000, etag='"old"', break_after=1000, breaks=3)
    with pytest.raises(DownloadError):
        fetch(server, "/f", tmp_path / "f")
    server.answers["/f"] = tls_server.file(CONTENT, etag='"new"')
    fetch(server, "/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_stale_part_without_a_tag_is_found_by_the_hash(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"stale")
    server.answers["/f"] = tls_server.file(CONTENT)
    fetch(server, "/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.headers("Range") == ["bytes=5-", None]


def test_a_part_that_is_already_whole_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT)
    server.answers["/f"] = tls_server.file(CONTENT)
    fetch(server, "/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_redirect_to_an_allowed_server_is_followed(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.redirect(server.url("/g", "other.example"))
    server.answers["/g"] = tls_server.redirect("/h")
    server.answers["/h"] = tls_server.file(CONTENT)
    fetch(server, "/f", tmp_path / "f")
    assert [path for path, _ in server.requests] == ["/f", "/g", "/h"]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://data.example/f", "is not https"),
        ("https://elsewhere.example/f", "'elsewhere.example' is not among those of the known data sets"),
        ("https://127.0.0.1/f", "'127.0.0.1' is not among"),
        ("https://data.example:22/f", "port 22"),
        ("https://me:secret@data.example/f", "user name"),
        ("file:///etc/passwd", "is not https"),
        ("ftp://data.example/f", "is not https"),
    ],
)
def test_a_redirect_is_checked_like_the_first_address(server: Server, tmp_path: Path, location: str, reason: str) -> None:
    server.answers["/f"] = tls_server.redirect(location)
    with pytest.raises(DownloadError, match=reason):
        fetch(server, "/f", tmp_path / "f")
    assert left(tmp_path) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("address", ["10.0.0.7", "169.254.169.254", "127.0.0.2", "::1", "fe80::1%eth0", "::ffff:10.0.0.7", "0.0.0.0"])
def test_a_redirect_to_a_private_address_is_refused(server: Server, tmp_path: Path, address: str) -> None:
    policy = replace(policy_for(server), resolve=lambda host, port: [address] if host == "inner.example" else ["127.0.0.1"])
    server.answers["/f"] = tls_server.redirect(server.url("/g", "inner.example"))
    with pytest.raises(DownloadError, match="a private or special address: refused"):
        fetch(server, "/f", tmp_path / "f", policy)
    assert left(tmp_path) == []


def test_one_private_address_among_public_ones_is_refused(server: Server, tmp_path: Path) -> None:
    policy = replace(policy_for(server), resolve=lambda host, port: ["93.184.215.14", "192.168.1.1"])
    with pytest.raises(DownloadError, match=r"leads to 192\.168\.1\.1"):
        fetch(server, "/f", tmp_path / "f", policy)
    assert server.requests == []


def test_by_default_a_private_address_is_refused(server: Server, tmp_path: Path) -> None:
    policy = Policy(hosts=frozenset({"localhost"}), port=server.port, resolve=lambda host, port: ["127.0.0.1"])
    with pytest.raises(DownloadError, match="a private or special address: refused"):
        download(f"https://localhost:{server.port}/f", tmp_path / "f", SHA256, len(CONTENT), policy)
    assert server.requests == []


def test_a_name_is_resolved_once_for_each_connection(server: Server, tmp_path: Path) -> None:
    asked = []

    def changing(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.7"]

    server.answers["/f"] = tls_server.file(CONTENT)
    fetch(server, "/f", tmp_path / "f", replace(policy_for(server), resolve=changing))
    assert asked == [HOST]


def test_redirects_in_a_circle_end(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.redirect("/f")
    with pytest.raises(DownloadError, match="redirects more than 3 times"):
        fetch(server, "/f", tmp_path / "f")
    assert len(server.requests) == 4


def test_an_unknown_certificate_is_refused(server: Server, tmp_path: Path) -> None:
    server.answers["/f"] = tls_server.file(CONTENT)
    defaults = Policy(hosts=frozenset())
    with pytest.raises(DownloadError, match=r"no connection to 'data\.example'"):
        fetch(server, "/f", tmp_path / "f", replace(policy_for(server), tls=defaults.tls))
    assert server.requests == []


def test_a_certificate_of_another_name_is_refused(server: Server, tmp_path: Path) -> None:
    policy = replace(policy_for(server), hosts=frozenset({"stranger.example"}))
    with pytest.raises(DownloadError, match=r"no connection to 'stranger\.example'"):
        download(server.url("/f", "stranger.example"), tmp_path / "f", SHA256, len(CONTENT), policy)
    assert server.requests == []


@pytest.mark.parametrize(
    "url", ["http://files.grouplens.org/f", "https://files.grouplens.org.evil.example/f", "https:///f", "https://[::1", "https://files.grouplens.org:8443/f"]
)
def test_by_default_only_the_servers_of_known_data_sets_are_asked(tmp_path: Path, url: str) -> None:
    def never(host: str, port: int) -> list[str]:
        raise AssertionError("must not be resolved")

    with pytest.raises(DownloadError):
        download(url, tmp_path / "f", SHA256, 1, Policy(hosts=catalogue.hosts(), resolve=never))
    assert left(tmp_path) == []


def test_an_error_of_the_server_is_told(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="404"):
        fetch(server, "/missing", tmp_path / "f")
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("198.18.0.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::808:808", True),
        ("2002:7f00:1::", False),
    ],
)
def test_public_addresses_are_told_from_others(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public
