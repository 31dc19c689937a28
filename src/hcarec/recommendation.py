"""Recommend after a history, for a user of a data set, or for all of its users into a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcarec import atomic
from hcarec.catalogs import overlap
from hcarec.data.split import Part
from hcarec.errors import ConfigError, DataError, ModelError
from hcarec.evaluation import resplit, take
from hcarec.models import Model
from hcarec.models.base import Recommendation, check_k
from hcarec.sequences import Sequences
from hcarec.topk import Queries, Ragged

FORMATS = {".parquet": "sink_parquet", ".csv": "sink_csv", ".jsonl": "sink_ndjson"}
"""How a file of recommendations is written, by its ending."""
USERS_AT_ONCE, ROWS_AT_ONCE = 4096, 200_000
"""At most so many users are ranked together, and about so many rows are held in memory."""

Id = str | int


class Rules(NamedTuple):
    """What may be recommended: `allow` and `deny` are outside ids, `hide_seen` leaves out the items of the history; None follows the model's rule."""

    hide_seen: bool | None = None
    allow: Sequence[Id] | None = None
    deny: Sequence[Id] = ()
    threads: int | None = None


class Written(NamedTuple):
    """What a file of recommendations holds: users with a list, rows, users who got the popular items, and whether seen items are left out."""

    users: int
    rows: int
    popular: int
    hide_seen: bool


def recommend(
    model: Model,
    history: Sequence[Id],
    k: int = 10,
    *,
    hide_seen: bool | None = None,
    allow: Sequence[Id] | None = None,
    deny: Sequence[Id] = (),
    threads: int | None = None,
) -> list[Recommendation]:
    """Recommend what comes next after a history of outside ids, oldest first; see `unknown_items` for what is skipped.

    `hide_seen` leaves out the items of the history; None follows the model's own rule, `Model.hide_seen`.
    """
    known = np.array([index for item in history if (index := model.item_ids.find(item)) >= 0], np.int32)
    return _one(model, (known, np.array([0, len(known)])), np.array([-1]), k, Rules(hide_seen, allow, deny, threads))


def recommend_user(
    model: Model,
    data: Sequences,
    user_id: Id,
    k: int = 10,
    *,
    hide_seen: bool | None = None,
    allow: Sequence[Id] | None = None,
    deny: Sequence[Id] = (),
    threads: int | None = None,
) -> list[Recommendation]:
    """Recommend for a user of a data set; the user's whole log there is the history."""
    if model.user_ids is not None and (user := trained_rows(model, data)[user_index(data, user_id)]) >= 0:
        past = np.array(data[user], np.int32), np.array([0, data.lengths[user]])
        return _one(model, past, np.array([user]), k, Rules(hide_seen, allow, deny, threads))
    return recommend(model, history_of(data, user_id), k, hide_seen=hide_seen, allow=allow, deny=deny, threads=threads)


def recommend_all(
    model: Model,
    data: Sequences,
    out_path: str | Path,
    k: int = 10,
    *,
    hide_seen: bool | None = None,
    allow: Sequence[Id] | None = None,
    deny: Sequence[Id] = (),
    threads: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Written:
    """Write recommendations for all users of a data set, a row per user and rank, as Parquet, CSV or JSON lines.

    The rows are streamed, so memory does not grow with the number of users; the file appears whole or not at all.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    target = Path(out_path)
    if target.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot write '{target}': name a file that ends in {', '.join(FORMATS)}")
    check_k(k)
    user_type, item_type = (ids.to_series().dtype for ids in (data.user_ids, model.item_ids))
    schema: dict[str, Any] = {"user_id": user_type, "rank": pl.Int32, "item_id": item_type, "score": pl.Float32, "basis": pl.String, "title": pl.String}
    counts = {"users": 0, "rows": 0, "popular": 0}

    def frames(*_: Any) -> Iterator[pl.DataFrame]:
        for frame, done in _frames(model, data, k, Rules(hide_seen, allow, deny, threads)):
            counts["users"] += frame["user_id"].n_unique()
            counts["rows"] += frame.height
            counts["popular"] += frame.filter((pl.col("rank") == 1) & (pl.col("basis") == "popular")).height
            yield frame
            if progress:
                progress(done, data.n_users)

    try:
        with atomic.file(target) as work:
            getattr(register_io_source(frames, schema=schema), FORMATS[target.suffix.lower()])(work)
    except OSError as error:
        raise ModelError(f"cannot write '{target}': {error.strerror or error}; nothing was changed there") from None
    return Written(**counts, hide_seen=model.hide_seen if hide_seen is None else hide_seen)


def open_data(model: Model, path: str | Path | None = None, *, allow_mismatch: bool = False) -> Sequences:
    """Open a data set to recommend from: the one given, or the one that the model was trained on, if it is still that.

    A given one of whose items the model knows less than half is refused by `DataError`, unless `allow_mismatch`.
    """
    if path is not None:
        data = Sequences.open(path)
        if not is_trained_on(model, data):
            overlap(model, data).check(f"'{path}'", allow_mismatch)
        return data
    noted = _noted(model)
    if not isinstance(noted.get("path"), str):
        raise DataError("the model does not note where its data is: give it with --data DATA")
    try:
        data = Sequences.open(noted["path"])
    except DataError as error:
        raise DataError(f"the data that the model notes cannot be opened ({error}); or give it with --data DATA") from None
    if data.fingerprint != noted.get("fingerprint"):
        raise DataError(
            f"'{noted['path']}' has changed since the model was trained (fingerprint {data.fingerprint[:12]}, then {str(noted.get('fingerprint'))[:12]}):"
            " to use it as it is now, give it with --data"
        )
    return data


def user_index(data: Sequences, user_id: Id) -> int:
    """Return the place of a user in a data set."""
    if (user := data.user_ids.find(user_id)) < 0:
        raise DataError(f"user '{user_id}' is not among the {data.n_users:,} users of the data: give one of them, or --history with items")
    return user


def history_of(data: Sequences, user_id: Id) -> list[Id]:
    """Return a user's whole log as outside ids, oldest first."""
    return [data.item_ids[item] for item in data[user_index(data, user_id)].tolist()]


def unknown_items(model: Model, history: Sequence[Id]) -> list[str]:
    """Return the items of a history that are not in the model's catalogue, each once, in order."""
    return list(dict.fromkeys(str(item) for item in history if model.item_ids.find(item) < 0))


# -- many at once ------------------------------------------------------------------------------------------------------


def _frames(model: Model, data: Sequences, k: int, rules: Rules) -> Iterator[tuple[Any, int]]:
    """Yield frames of recommendations and how many users are done."""
    import polars as pl

    k = min(k, len(model.item_ids))
    places, rows, allowed = _places(model, data), trained_rows(model, data), model.mask(rules.allow, rules.deny)
    user_ids, names = data.user_ids.to_series(), model.item_ids.to_series()
    known = [title or None for title in model.titles.texts()] if model.titles is not None else [None] * len(model.item_ids)
    titles = pl.Series(known, dtype=pl.String)
    size = max(1, min(USERS_AT_ONCE, ROWS_AT_ONCE // max(k, 1)))
    for begin in range(0, data.n_users, size):
        end = min(begin + size, data.n_users)
        items, scores, personal = _rank(model, _histories(data, places, begin, end), rows[begin:end], k, rules, allowed)
        user, rank = np.nonzero(items >= 0)
        found = items[user, rank]
        basis = pl.Series([model.basis, "popular"]).gather(np.where(personal, 0, 1)[user])
        who = {"user_id": user_ids.gather(begin + user), "rank": (rank + 1).astype(np.int32)}
        what = {"item_id": names.gather(found), "score": scores[user, rank], "basis": basis, "title": titles.gather(found)}
        yield pl.DataFrame(who | what), end


def _one(model: Model, past: Ragged, row: np.ndarray, k: int, rules: Rules) -> list[Recommendation]:
    check_k(k)
    items, scores, personal = _rank(model, past, row, min(k, max(1, len(model.item_ids))), rules, model.mask(rules.allow, rules.deny))
    return model.named(items[0], scores[0], model.basis if personal[0] else "popular")


def _rank(model: Model, past: Ragged, rows: np.ndarray, k: int, rules: Rules, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best items (n, k), their scores, and who has a history to go by (n,); the others get the popular items.

    `rows` (n,) are the users' rows among the vectors of a model that has them, -1 where it has none.
    """
    personal = np.diff(past[1]) > 0
    hide = model.hide_seen if rules.hide_seen is None else rules.hide_seen
    items, scores = model.top(_queries(model, past, rows, rules.threads), k, past if hide else None, allowed, rules.threads)
    if not personal.all():
        items[~personal], scores[~personal] = model.popular(k, None, allowed)
    return items, scores, personal


def _queries(model: Model, past: Ragged, rows: np.ndarray, threads: int | None) -> Queries:
    """Return the queries of histories: a trained user's own vector, or what the model makes of the history."""
    trained = rows >= 0
    if model.user_ids is None or not trained.any():
        return model.encode(*past, threads=threads)
    H = np.empty((len(rows), model.item_vectors.shape[1]), np.float32)
    H[trained] = model.encode(*past, users=rows[trained]).vectors
    if not trained.all():
        H[~trained] = model.encode(*take(Part(*past), np.flatnonzero(~trained))).vectors
    return Queries(H)


def trained_rows(model: Model, data: Sequences) -> np.ndarray:
    """Return each user's row among a model's user vectors, (n_users,), or -1.

    Only users of the very data that it was trained on have one, and only if they gave it something to learn from.
    """
    rows = np.full(data.n_users, -1)
    if model.user_ids is not None and is_trained_on(model, data):
        rules = model.about.get("protocol")
        learned = (resplit(data, rules["split"]).train if rules else data).lengths > 0
        rows[learned] = np.flatnonzero(learned)
    return rows


def is_trained_on(model: Model, data: Sequences) -> bool:
    """Say whether this is the very data that a model was trained on."""
    return bool(_noted(model).get("fingerprint") == data.fingerprint)


def _noted(model: Model) -> dict[str, Any]:
    """Return what a model notes about its data; model.json may have been written by anybody."""
    noted = model.about.get("data")
    return noted if isinstance(noted, dict) else {}


def _places(model: Model, data: Sequences) -> np.ndarray:
    """Return where the items of a data set are in the model's catalogue, (n_items,), -1 for those that are not."""
    if is_trained_on(model, data):
        return np.arange(data.n_items, dtype=np.int32)
    return np.array([model.item_ids.find(item) for item in data.item_ids.texts()], np.int32)


def _histories(data: Sequences, places: np.ndarray, begin: int, end: int) -> Ragged:
    """Return the known items of some users, packed."""
    offsets = np.asarray(data.offsets[begin : end + 1])
    items = places[np.asarray(data.items[offsets[0] : offsets[-1]])]
    kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(items >= 0)])
    return items[items >= 0], kept[offsets - offsets[0]]
