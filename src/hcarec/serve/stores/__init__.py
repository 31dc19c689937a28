"""Where the live service keeps the users' logs and states; `interface` says what a store does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.serve.stores.interface import Store

REDIS = ("redis://", "rediss://", "unix://")


def open_store(
    address: str,
    verify: bool = True,
    prefix: str = "hcarec:",
    timeout: float = 2.0,
    accept_less: bool = False,
    apart: bool = False,
    history_limit: int | None = None,
) -> Store:
    """Open the store at an address: a server of Redis or Valkey, or the path of an SQLite file.

    `verify` is for SQLite, as is `apart`, which puts it into a process of its own; `prefix` and `accept_less` are for Redis. An answer that
    takes longer than `timeout` seconds is none; a process of its own that is silent for a few times as long is started anew.
    Of a user about `history_limit` events are kept, the latest.
    """
    if address.startswith(REDIS):
        from hcarec.serve.stores.redis import RedisStore

        return RedisStore(address, prefix, timeout, accept_less, history_limit)
    scheme, is_address, _ = address.partition("://")
    if is_address and "/" not in scheme:  # the rest is not said: it may hold a password
        raise ConfigError(f"there is no store at addresses that begin with {scheme}://: give {', '.join(REDIS)} or the path of an SQLite file")
    if apart:
        from hcarec.serve.stores.apart import ApartStore

        return ApartStore(address, verify, timeout, history_limit)
    from hcarec.serve.stores.sqlite import SqliteStore

    return SqliteStore(address, verify, history_limit=history_limit)
