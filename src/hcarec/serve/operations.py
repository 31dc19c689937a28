"""The list of what can be asked over HTTP: routes and the OpenAPI document are both made from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from hcarec.serve import answers, schemas
from hcarec.serve.page_files import KINDS


class Operation(NamedTuple):
    """One method of one path; `name` is that of its function in `hcarec.serve.handlers`.

    `scope` is what a key must hold, None where no key is needed. `body` is a type, or several of which one is sent.
    `refuses` are the statuses, beside those that any operation may give, with the reason. Operations that are not
    `counted` are answered however much else is going on. `kinds` are the types of an answer that is not JSON.
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
    kinds: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it changes the log of one user."""
        return self.method == "DELETE" or self.scope == "write"


_TWICE = "user and history are both given, an id has more bytes than the store takes, or there is no model of that name."
_PAGE = {304: "It is still what If-None-Match names.", 404: "The page has no such file."}
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
        "attention",
        "POST",
        "/v1/attention",
        "Show where the attention lay at each of the last steps.",
        "read",
        answers.Attended,
        schemas.Look,
        refuses={422: _TWICE, 503: _STORE},
    ),
    Operation(
        "items",
        "GET",
        "/v1/items",
        "Find items by words of their names, or by id.",
        "read",
        answers.FoundItems,
        query=schemas.ItemsQuery,
        refuses={503: "Too much is waiting; Retry-After says when to try again."},
    ),
    Operation(
        "item",
        "GET",
        "/v1/items/{item}",
        "Say what is known of an item.",
        "read",
        answers.CatalogueItem,
        refuses={404: "The item is not in the model's catalogue.", 422: "The id has too many bytes."},
    ),
    Operation(
        "similar",
        "GET",
        "/v1/similar/{item}",
        "List the items most like one.",
        "read",
        answers.Similar,
        query=schemas.SimilarQuery,
        refuses={404: "The item is not in the model's catalogue.", 422: "The id has too many bytes, or the model cannot compare items.", 503: _STORE},
    ),
    Operation("models", "GET", "/v1/models", "Describe the models that can be named.", "read", answers.Models),
    Operation(
        "users",
        "GET",
        "/v1/users",
        "List users whose ids begin with a text.",
        "admin",
        answers.Users,
        query=schemas.UsersQuery,
        refuses={422: "The text has more bytes than an id.", 503: _STORE},
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
        "retract",
        "DELETE",
        "/v1/users/{user}/events/{event_id}",
        "Remove one event; every later answer is as if it had never been there.",
        "write",
        answers.Removed,
        refuses={404: "There is no such event.", 422: "An id has more bytes than the store takes.", 503: _STORE},
    ),
    Operation(
        "forget",
        "DELETE",
        "/v1/users/{user}",
        "Forget a user: remove the log and the state from the store.",
        "admin",
        answers.Forgotten,
        refuses={404: "There are no events of this user.", 422: "The id has more bytes than the store takes.", 503: _STORE},
    ),
    Operation(
        "swap",
        "POST",
        "/admin/model",
        "Answer with another model from now on; no request fails meanwhile, and a bad model is refused.",
        "admin",
        answers.Swapped,
        schemas.Swap,
        refuses={422: "The model cannot be used, or does not fit; the one before goes on.", 503: _STORE},
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
    Operation(
        "restore",
        "POST",
        "/admin/restore",
        "Put a backup in the place of everything that the store holds, whole or not at all, while the service goes on.",
        "admin",
        answers.Restored,
        schemas.Named,
        refuses={422: "The backup is not there, damaged or none, or the store is one of several servers; what was there before goes on.", 503: _STORE},
        counted=False,
    ),
    Operation("health", "GET", "/healthz", "Say that the server runs.", None, answers.Fine, counted=False),
    Operation(
        "ready", "GET", "/readyz", "Say whether requests can be served.", None, answers.Ready, refuses={503: "Not now; the message says why."}, counted=False
    ),
    Operation("status", "GET", "/v1/status", "Say how the server is doing.", "read", answers.Doing, counted=False),
    Operation("metrics", "GET", "/metrics", "Give figures for Prometheus.", "read", counted=False, kinds=("text/plain",)),
    Operation("openapi", "GET", "/openapi.json", "Give this document.", None, Any, counted=False),
    Operation("page", "GET", "/", "Show the page.", None, refuses=_PAGE, counted=False, kinds=("text/html",)),
    Operation(
        "page_file",
        "GET",
        "/page/{file}",
        "Give a file of the page.",
        None,
        refuses=_PAGE | {422: "The name has too many bytes."},
        counted=False,
        kinds=tuple(kind.partition(";")[0] for kind in KINDS.values()),
    ),
)
