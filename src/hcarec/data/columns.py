"""Find the columns of a log by the names that people give them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hcarec.config import ReadOptions
from hcarec.errors import ConfigError, InputError, nearest

COMMON_NAMES = {
    "user": """
        user_id user userid uid customer_id customer visitor_id member_id account_id reviewer_id uuid client_id person_id
        session_id session sid
    """,
    "item": """
        item_id item itemid iid product_id product sku asin movie_id movie track_id song_id artist_id article_id news_id
        document_id doc_id business_id venue_id location_id poi_id stock_code book_id game_id app_id video_id
    """,
    "time": """
        timestamp time ts datetime date event_time created_at unix_review_time unix_time occurred_at event_date
        event_timestamp timestamp_ms rating_timestamp invoice_date
    """,
    "event": "event event_type type behavior behaviour behavior_type action action_type",
}
"""By role, the names looked for, the likelier first; case and punctuation do not matter."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns that were taken."""

    user: str
    item: str
    time: str | None
    event: str | None

    def wanted(self) -> list[str]:
        """Return the names in the order user, item, time, event, without what is not there."""
        return [name for name in (self.user, self.item, self.time, self.event) if name is not None]


def find_columns(header: Sequence[str], options: ReadOptions, where: str) -> Columns:
    """Choose the columns of a file from its header, as asked or by common names."""
    names = [name.split(":")[0] if _is_recbole(header) else name for name in header]
    user = _find(names, "user", options.user_col, where, needed=True)
    item = _find(names, "item", options.item_col, where, needed=True)
    time = _find(names, "time", options.time_col, where, needed=False)
    event = _find(names, "event", options.event_col, where, needed=bool(options.events)) if options.events or options.event_col else None
    assert user is not None and item is not None
    if user == item:
        raise ConfigError(f"the user column and the item column are both '{user}': give two different columns with --user-col and --item-col")
    if time in (user, item):
        raise ConfigError(f"the time column is also the {'user' if time == user else 'item'} column '{time}': give another --time-col")
    if event is not None and event in (user, item, time):
        raise ConfigError(f"the event column '{event}' is also that of the user, the item or the time: give another --event-col")
    back = dict(zip(names, header, strict=True))
    return Columns(back[user], back[item], back[time] if time is not None else None, back[event] if event is not None else None)


def _find(names: list[str], role: str, given: str | None, where: str, needed: bool) -> str | None:
    if given is not None:
        if given not in names:
            raise InputError(f"{where} has no column '{given}' (--{role}-col); its columns are {_listed(names)}{nearest(given, names)}")
        return _once(given, names, where)
    simple = {}
    for name in reversed(names):
        simple[_simplify(name)] = name
    for common in COMMON_NAMES[role].split():
        if _simplify(common) in simple:
            return _once(simple[_simplify(common)], names, where)
    if not needed:
        return None
    raise InputError(
        f"{where} has no column that looks like the {role}; name it with --{role}-col; its columns are {_listed(names)}{_nearest_common(role, names)}"
    )


def _once(name: str, names: list[str], where: str) -> str:
    if names.count(name) > 1:
        raise InputError(f"{where} has {names.count(name)} columns named '{name}': rename them so that each name stands once")
    return name


def _simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _nearest_common(role: str, names: list[str]) -> str:
    for common in COMMON_NAMES[role].split()[:6]:
        if hint := nearest(common, names):
            return hint
    return ""


def _is_recbole(header: Sequence[str]) -> bool:
    """Say whether every name carries one of RecBole's types, as in 'user_id:token'."""
    return all(re.search(r":(token|float|token_seq|float_seq)$", name) for name in header)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name[:40]}'" for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")
