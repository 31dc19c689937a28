"""The connection of a Redis store: what the server must be like, and what its failures mean."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hcarec.extras import require
from hcarec.serve.stores.errors import StoreError, StoreFull, StoreUnreachable
from hcarec.serve.stores.records import encode
from hcarec.serve.stores.redis_keys import READ

T = TypeVar("T")
OLDEST = 7
PASSWORD, PASSWORD_FILE = "HCAREC_REDIS_PASSWORD", "HCAREC_REDIS_PASSWORD_FILE"
EXAMINE_EVERY_S = 2.0
"""How often the settings of the server are looked at; whoever changes them does so while it runs."""
NEEDED = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no", "maxmemory-policy": "noeviction"}


def password() -> str | None:
    """Return the password of the server from the environment or from a file, since everybody on the machine can read a command line."""
    if path := os.environ.get(PASSWORD_FILE):
        try:
            return Path(path).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"the file '{path}' of {PASSWORD_FILE} cannot be read ({error}): give one with the password alone") from None
    return os.environ.get(PASSWORD)


class RedisConnection:
    """A client whose calls wait a bounded time and fail with our errors."""

    def __init__(self, url: str, prefix: str, timeout: float, accept_less: bool) -> None:
        redis = require("redis", "the Redis store", extra="redis")
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._redis: Any = redis
        self._prefix = prefix.encode()
        self._scripts: dict[str, Any] = {}
        self._accept_less = accept_less
        self._examined_at = float("-inf")
        self._epoch_key: bytes | None = None
        self._replication = b""
        self.trouble: str | None = None
        """Why the server no longer keeps what was promised; nothing is written then."""
        try:
            # No retries by the client: a script that was applied and is sent again would look refused.
            given: dict[str, Any] = {} if (secret := password()) is None else {"password": secret}
            given |= {"socket_timeout": timeout, "socket_connect_timeout": timeout, "redis_connect_func": self._connected}
            self.client: Any = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **given)
        except ValueError:
            raise StoreError("the address of the Redis store is not understood: give redis://host:port/0, rediss://.. or unix://path") from None
        try:
            self.durability = self._examine()
            self._examined_at = time.monotonic()
            self._refuse_half()
        except StoreUnreachable as error:
            self.close()
            trouble = f"the Redis server at {self._where()} does not answer, or is still loading"
            raise StoreUnreachable(f"{trouble}: check that it runs and that the address is right, then start again") from error
        except BaseException:
            self.close()
            raise

    def _where(self) -> str:
        """Return the place of the server, without the password."""
        place: dict[str, Any] = self.client.connection_pool.connection_kwargs
        return str(place["path"]) if "path" in place else f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"

    @property
    def epoch(self) -> tuple[bytes | None, bytes]:
        """What the versions of this store belong to: another one says that data may have been lost, and that versions may occur again with other events.

        It is a random value kept with the data, which is gone when they are, and the server's own name of its line of data, which changes when a
        replica takes over or the server starts again.
        """
        return self._epoch_key, self._replication

    def _connected(self, connection: Any) -> None:
        """Look at the server behind a new connection before it is used; whether it keeps what was promised is examined before the next write."""
        connection.on_connect()
        connection.send_command("INFO", "replication")
        lines = dict(line.split(b":", 1) for line in bytes(connection.read_response()).splitlines() if b":" in line)
        self._replication = lines.get(b"master_replid", b"")
        self._examined_at = float("-inf")

    def note_epoch(self, found: bytes | None) -> None:
        """Take note of the epoch that data were read with; where there is none, the store begins anew and gets one."""
        if found is None:
            key = self.key("epoch")
            _, found = self.write([("SET", key, secrets.token_hex(16), "NX"), ("GET", key)])
        self._epoch_key = found

    def examine_if_due(self) -> None:
        """Examine the server again after some seconds, or on a new connection; `trouble` says what was found."""
        if time.monotonic() - self._examined_at < EXAMINE_EVERY_S:
            return
        try:
            with self.reached():
                self._replication = str(self.client.info("replication").get("master_replid", "")).encode()
            self.durability, self.trouble = self._examine(), None
        except StoreUnreachable:
            raise
        except StoreError as error:
            self.trouble = str(error)
        self._examined_at = time.monotonic()

    def refuse_if_not_durable(self) -> None:
        """Fail where a write would not be kept as promised."""
        self.examine_if_due()
        if self.trouble is not None:
            raise StoreError(self.trouble)

    def _examine(self) -> str:
        info = self.info("server") | self.info("cluster")
        version = str(info.get("redis_version", "0"))
        if int(version.partition(".")[0]) < OLDEST:
            raise StoreError(f"the Redis server is of version {version}, expected {OLDEST} or later: use a newer one")
        if info.get("cluster_enabled"):
            raise StoreError("the Redis server is part of a cluster: give a single server (with replicas, if you like)")
        try:
            settings: dict[str, str] = dict(self.client.config_get(*NEEDED))
        except self._redis.ResponseError:
            settings = {}
        except self._redis.RedisError as error:
            raise self._translated(error) from error
        wrong = [f"{name} {settings.get(name, '(unknown)')}" for name, needed in NEEDED.items() if settings.get(name) != needed]
        if not wrong:
            return "acknowledged events are on the disk of the Redis server"
        if self._accept_less:
            return f"acknowledged events may be lost with the Redis server ({', '.join(wrong)})"
        needed = ", ".join(f"{name} {value}" for name, value in NEEDED.items())
        raise StoreError(f"the Redis server may lose acknowledged events ({', '.join(wrong)}): set {needed}, or accept that with --set accept_less=true")

    def _refuse_half(self) -> None:
        """Refuse a store that somebody else is filling from a backup, or has filled by half."""
        if self.read([("GET", self.key("restoring"))])[0] is not None:
            raise self._half()

    def _half(self) -> StoreError:
        return StoreError(
            "a backup is being restored into this Redis store, or was until that was interrupted: wait for its end, "
            "or empty the database (redis-cli FLUSHDB, where nothing else is in it) and start with --restore again"
        )

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Run a block that fills the store; while it runs, and after one that failed, nobody else opens the store."""
        key, own = self.key("restoring"), secrets.token_bytes(16)
        self.write([("SET", key, own, "NX")])
        if self.read([("GET", key)])[0] != own:  # the answer to the first says less: it may have been sent twice
            raise self._half()
        yield
        self.write([("DEL", key)])

    # -- keys ----------------------------------------------------------------------------------------------------

    def key(self, kind: str, name: bytes = b"") -> bytes:
        """Return the key of something."""
        return self._prefix + kind.encode() + name

    def common_keys(self) -> list[bytes]:
        """Return the keys that every commit may change."""
        return [self.key(kind) for kind in ("clock", "events", "users", "models", "seeds")]

    def change_keys(self, name: bytes, model: bytes) -> list[bytes]:
        """Return the keys of one user, and of the states of a model."""
        return [self.key("user:", name), self.key("log:", name), self.key("ids:", name), self.key("states:", model)]

    # -- calls ---------------------------------------------------------------------------------------------------

    def read(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands that only read, and answer them as of one moment; a lost connection is made anew, once."""
        arguments = [word for request in requests for word in (len(request), *request)]
        return self._twice(lambda: self.script(READ, (), arguments)) if requests else []

    def write(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands that may be repeated, as one transaction; a lost connection is made anew, once."""

        def send() -> list[Any]:
            with self.reached(), self.client.pipeline(transaction=True) as pipeline:
                for request in requests:
                    pipeline.execute_command(*request)
                return list(pipeline.execute())

        return self._twice(send)

    def info(self, section: str) -> dict[str, Any]:
        """Read what the server says of itself."""

        def ask() -> dict[str, Any]:
            with self.reached():
                return dict(self.client.info(section))

        return self._twice(ask)

    def _twice(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except StoreUnreachable as error:
            if isinstance(error.__cause__, self._redis.TimeoutError):
                raise  # it has had its time
            return work()

    def script(self, text: str, keys: Sequence[bytes], arguments: Sequence[Any]) -> Any:
        """Run a script, once."""
        if text not in self._scripts:
            self._scripts[text] = self.client.register_script(text)
        with self.reached():
            return self._scripts[text](keys=keys, args=arguments)

    def reserve(self, wanted: Sequence[tuple[bytes, int]]) -> tuple[int, list[bytes | None]]:
        """Reserve as many arrival numbers as users have new events; return the number before the first, and the users' records.

        A change that is then refused leaves a gap in the numbers. A user's version still only grows: numbers are
        reserved after the version that the change expects was read, so they are greater.
        """
        self.refuse_if_not_durable()
        total, epoch = sum(count for _, count in wanted), self.epoch
        asked = [("INCRBY", self.key("clock"), total), ("GET", self.key("epoch")), *(("GET", self.key("user:", name)) for name, _ in wanted)]
        clock, found, *records = self.write(asked)
        if (found, self._replication) != epoch:  # what the caller has read is of a store that is no more
            self.note_epoch(found)
            raise StoreUnreachable("the Redis store began anew: what was known of it is read again; try again")
        return clock - total, records

    def page(self, after: str | None, limit: int) -> list[bytes]:
        """Read up to `limit` users in the order of their ids' bytes."""
        assert limit >= 1
        first = b"-" if after is None else b"(" + encode("user", after)
        names: list[bytes] = self.read([("ZRANGEBYLEX", self.key("users"), first, b"+", b"LIMIT", 0, limit)])[0]
        return names

    def seeds(self) -> dict[bytes, bytes]:
        """Read how far imports have come: users done, and a full stop behind where finished."""
        flat = self.read([("HGETALL", self.key("seeds"))])[0]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def close(self) -> None:
        """Close all connections."""
        self.client.close()

    # -- errors --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Turn errors of the client into ours."""
        try:
            yield
        except self._redis.RedisError as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> StoreError:
        text = str(error)
        if isinstance(error, self._redis.AuthenticationError | self._redis.exceptions.NoPermissionError):
            return StoreError("the Redis server refused the user or password: check the address and the rights")
        if isinstance(error, self._redis.exceptions.OutOfMemoryError) or text.startswith(("OOM", "MISCONF")):
            return StoreFull("the Redis server has no room left to write: free memory or disk there; reads go on, writing goes on by itself")
        if isinstance(error, self._redis.ConnectionError | self._redis.TimeoutError | self._redis.ReadOnlyError):
            return StoreUnreachable("the Redis server cannot be reached or written to: check that it runs; the next call tries again")
        return StoreError(f"the Redis server answered with an error ({text.splitlines()[0] if text else type(error).__name__}): check its log")
