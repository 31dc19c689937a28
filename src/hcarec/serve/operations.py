"""The list of what can be asked over HTTP: routes and the OpenAPI document are both made from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from hcarec.serve import answers, schemas


class Operation(NamedTuple):
    """One method of one path; `name` is that of its function in `hcarec.serve.handlers`.

    `scope` is what a key must hold, None where no key is needed. `body` is a type, or several of which one is sent.
    `refuses` are the statuses, beside those that any operation may give, with the reason. Operations that are not
    `counted` are answered however much else is going on.
    """

    name: str
    method: str
    path: str
    summary: str
    scope: str | None
    answer: Any = None
    body: Any = None
    query: Any = None
    refuses: dict[int, str] = {}  # noqa: RUF012 - a tuple's default, never changed
    counted: bool = True


_TWICE = "user and history are both given, or an id has more bytes than the store takes."
_STORE = "The store or the queue is full, or the store is out of reach; Retry-After says when to try again."

OPERATIONS = (
    Operation(
        "take",
        "POST",
        "/v1/events",
        "Take in one event or several; answered when they are durable, and seen by every recommendation after that.",
        "write",
        answers.TakenEvents,
        (schemas.Event, schemas.Events, schemas.EventList),
        refuses={422: "An id has more bytes than the store takes.", 503: _STORE},
    ),
    Operation(
        "recommend", "POST", "/v1/recommend", "Recommend what comes next.", "read", answers.Recommended, schemas.Wish, refuses={422: _TWICE, 503: _STORE}
    ),
    Operation(
        "explain",
        "POST",
        "/v1/explain",
        "Explain a recommendation: where the attention looked, and what each event did to the score.",
        "read",
        answers.Explained,
        schemas.Question,
        refuses={422: "The model has no attention to show, nothing of the history is known, or the item is not in the catalogue.", 503: _STORE},
    ),
    Operation(
        "similar",
        "GET",
        "/v1/similar/{item}",
        "List the items most like one.",
        "read",
        answers.Similar,
        query=schemas.SimilarQuery,
        refuses={404: "The item is not in the model's catalogue.", 422: "The id has too many bytes, or the model has no vectors of items.", 503: _STORE},
    ),
    Operation(
        "history",
        "GET",
        "/v1/users/{user}",
        "List the last events of a user.",
        "read",
        answers.UserHistory,
        query=schemas.HistoryQuery,
        refuses={404: "There are no events of this user.", 422: "The id has more bytes than the store takes.", 503: _STORE},
    ),
    Operation(
        "forget",
        "DELETE",
        "/v1/users/{user}",
        "Forget a user: remove the log and the state from the store.",
        "admin",
        answers.Forgotten,
        refuses={422: "The id has more bytes than the store takes.", 503: _STORE},
    ),
    Operation(
        "swap",
        "POST",
        "/admin/model",
        "Answer with another model from now on; no request fails meanwhile, and a bad model is refused.",
        "admin",
        answers.Swapped,
        schemas.Named,
        refuses={422: "The model cannot be used; the one before goes on.", 503: _STORE},
        counted=False,
    ),
    Operation(
        "backup",
        "POST",
        "/admin/backup",
        "Write a copy of the store into the server's folder of backups, while it is in use.",
        "admin",
        answers.BackedUp,
        schemas.Named,
        refuses={422: "The server has no folder of backups, or one of this name is there already.", 503: _STORE},
        counted=False,
    ),
    Operation("health", "GET", "/healthz", "Say that the server runs.", None, answers.Fine, counted=False),
    Operation(
        "ready", "GET", "/readyz", "Say whether requests can be served.", None, answers.Fine, refuses={503: "Not now; the message says why."}, counted=False
    ),
    Operation("metrics", "GET", "/metrics", "Give figures for Prometheus.", "read", counted=False),
    Operation("openapi", "GET", "/openapi.json", "Give this document.", None, Any, counted=False),
)
