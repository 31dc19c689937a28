"""Requests that nobody means well with, as bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from urllib.parse import quote

PATHS = ("/v1/events", "/v1/recommend", "/v1/explain", "/admin/model", "/admin/backup")
ODD = ("\0", "\n", "\r\n", "\u202e", "\ufeff", "e\u0301", "\U0001f600", "../", "%00", "'", '"', "{{", "\ufffd", "\u2028", "\x7f", "ﬀ", "İ", " ")


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    """Return a request that fits HTTP, whatever its body is."""
    lines = [b"POST %s HTTP/1.1" % path.encode(), b"Host: localhost", b"Connection: close", b"Content-Type: application/json"]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), *headers, b"", body])


def get(path: str, *headers: bytes, method: bytes = b"GET") -> bytes:
    """Return a request without a body."""
    return b"\r\n".join([method + b" %s HTTP/1.1" % path.encode(), b"Host: localhost", b"Connection: close", *headers, b"", b""])


def odd_text(dice: random.Random) -> str:
    """Return an id that is unusual, and sometimes too long."""
    return "".join(dice.choice([*ODD, "a", "i01"]) for _ in range(dice.choice([1, 3, 8, 300])))


def odd_body(dice: random.Random) -> bytes:
    """Return JSON that is deep, truncated, not UTF-8 or about odd ids, or no JSON at all."""
    fine = json.dumps({"user": odd_text(dice), "item": odd_text(dice), "event_id": odd_text(dice)}, ensure_ascii=dice.random() < 0.5).encode()
    kinds: list[Callable[[], bytes]] = [
        lambda: fine,
        lambda: fine[: dice.randrange(len(fine))],
        lambda: fine.replace(b"a", bytes([dice.randrange(128, 256)])),
        lambda: b"[" * dice.randrange(1, 100_000),
        lambda: b'{"user":' * dice.randrange(1, 20_000) + b"1",
        lambda: b"[" + b",".join([fine] * dice.randrange(1, 50)) + b"]",
        lambda: b'{"history":[' + b'"i01",' * dice.randrange(1, 5000) + b'"x"], "k": %d}' % dice.randrange(-5, 3000),
        lambda: b'{"k": ' + b"9" * dice.randrange(1, 5000) + b"}",
        lambda: dice.randbytes(dice.randrange(1, 2000)),
        lambda: b'{"user": "\\ud800", "item": "\\u0000"}',
        lambda: b'{"user": "a", "visit": ["\xff\xfe"], "deny": [' + b'"",' * 10 + b'""]}',
    ]
    return dice.choice(kinds)()


def bodies(dice: random.Random) -> bytes:
    return post(dice.choice(PATHS), odd_body(dice))


def large_bodies(dice: random.Random) -> bytes:
    return post(dice.choice(PATHS), b" " * dice.randrange(1_000_000, 3_000_000))


def headers(dice: random.Random) -> bytes:
    """Return many headers, long ones, or odd ones."""
    flood = [
        [b"X-%d: %s" % (n, b"y" * dice.randrange(200)) for n in range(dice.randrange(1, 400))],
        [b"X: " + b"y" * dice.randrange(100_000)],
        [b"X-Request-Id: " + dice.randbytes(20).hex().encode()],
        [b"Authorization: Bearer " + dice.randbytes(30)],
        [b"Host: elsewhere.example"],
        [b"X-Forwarded-For: " + b"1.2.3.4, " * 500],
        [b"Content-Length: 3", b"Transfer-Encoding: chunked"],
    ]
    return get(dice.choice(["/healthz", "/v1/users/a", "/metrics"]), *dice.choice(flood))


def paths(dice: random.Random) -> bytes:
    """Return odd ids in paths, paths that do not exist, and odd methods; each a new one, so that figures by path would grow without end."""
    text = odd_text(dice)
    where = dice.choice(["/v1/users/", "/v1/similar/", "/v1/items/", "/page/", "/", "/v1/users/a/events/"])
    written = quote(text, safe="") if dice.random() < 0.8 else "".join(f"%{dice.randrange(256):02x}" for _ in range(30))
    query = dice.choice(["", "?limit=3", "?limit=" + "9" * 50, "?k=0", "?" + "a=b&" * 200, "?%ff=%00"])
    return get(f"{where}{written}{dice.randrange(10**9)}{query}", method=dice.choice([b"GET", b"GET", b"DELETE", b"PUT", b"TRACE", b"M" * 20]))


def strangers(dice: random.Random) -> bytes:
    """Return asks for people who were never heard of, each a new one."""
    return post("/v1/recommend", json.dumps({"user": f"nobody {dice.random()}", "hide_seen": True}).encode(), b"X-Request-Id: r-%d" % dice.randrange(10**9))


def no_http(dice: random.Random) -> bytes:
    return dice.choice([b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", bytes(200), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", dice.randbytes(300) + b"\r\n\r\n"])


def pipelined(dice: random.Random) -> bytes:
    """Return many requests at once, the last of which ends the connection."""
    return get("/openapi.json").replace(b"Connection: close", b"X: y") * dice.randrange(1, 40) + get("/healthz")


def halves(dice: random.Random) -> bytes:
    """Return the beginning of a request, and no more."""
    whole = post("/v1/recommend", b'{"history": ["i01"]}')
    return whole[: dice.randrange(1, len(whole))]


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "odd bodies": bodies,
    "large bodies": large_bodies,
    "floods of headers": headers,
    "odd paths and methods": paths,
    "strangers": strangers,
    "not HTTP": no_http,
    "many at once on a connection": pipelined,
    "halves": halves,
}
