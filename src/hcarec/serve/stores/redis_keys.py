"""What a Redis store writes: its keys, its records, and the scripts that change them.

All keys begin with a prefix. `clock`: the counter of arrival numbers and versions; `events`: how many are kept;
`users`: a sorted set of all users, by their bytes; `user:<user>`: one record (version, number of events, last time,
digest, checksum); `log:<user>`: a sorted set, all scores 0, of events packed so that the order of bytes is that of the
log; `ids:<user>`: the set of event ids; `models`: the set of models; `states:<model>`: a hash from user to state;
`seeds`: a hash from the fingerprint of a data set to how far its import has come.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

from hcarec.serve.stores.errors import StoreDamaged
from hcarec.serve.stores.records import checksum, event_checksum

_RECORD = struct.Struct("<qqqII")
_EVENT = struct.Struct(">QQHhI")  # time and arrival first, big end first: the order of bytes is the order of the log
_STATE = struct.Struct("<qI")
_BIAS = 1 << 63  # negative times before positive ones

# ARGV: per command its number of words, then the words. A script rather than MULTI, which a server that is out of memory
# refuses even for reading.
READ = """#!lua flags=no-writes
local replies, at, count = {}, 1, 0
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  count = count + 1
  replies[count] = redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return replies
"""

# Every script that writes compares the user's whole record with the one that the caller has read: equal bytes, equal version.
# KEYS: clock, events, users, models, seeds, then per change user, log, ids, states. ARGV: the seed's name, what its progress
# must be and what it becomes, then per change: name, model, old record, new record, state or "", n, m, n events, m ids.
# Without a seed ("") each change stands alone: 1 where made, 0 where not. With one, all are made, or none and {-1} returned.
COMMIT = """
local applied, seen, at, ok = {}, {}, 4, true
local changes = (#KEYS - 5) / 4
for c = 1, changes do
  local base, n, m = 5 + (c - 1) * 4, tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local fits = (redis.call('GET', KEYS[base + 1]) or '') == ARGV[at + 2]
  if fits and m > 0 then
    for i = 1, m do
      if redis.call('SISMEMBER', KEYS[base + 3], ARGV[at + 6 + n + i]) == 1 then fits = false end
    end
  end
  if fits and seen[KEYS[base + 1]] then fits = false end
  if fits then seen[KEYS[base + 1]] = true end
  applied[c] = fits and 1 or 0
  ok = ok and fits
  at = at + 7 + n + m
end
local seeding = ARGV[1] ~= ''
if seeding then
  if not ok or (redis.call('HGET', KEYS[5], ARGV[1]) or '') ~= ARGV[2] then return {-1} end
  redis.call('HSET', KEYS[5], ARGV[1], ARGV[3])
end
at = 4
local added = 0
for c = 1, changes do
  local base, n, m = 5 + (c - 1) * 4, tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  if applied[c] == 1 then
    redis.call('SET', KEYS[base + 1], ARGV[at + 3])
    for i = 1, n do redis.call('ZADD', KEYS[base + 2], 0, ARGV[at + 6 + i]) end
    for i = 1, m do redis.call('SADD', KEYS[base + 3], ARGV[at + 6 + n + i]) end
    redis.call('ZADD', KEYS[3], 0, ARGV[at])
    if ARGV[at + 4] ~= '' then
      redis.call('HSET', KEYS[base + 4], ARGV[at], ARGV[at + 4])
      redis.call('SADD', KEYS[4], ARGV[at + 1])
    end
    added = added + n
  end
  at = at + 7 + n + m
end
if added > 0 then redis.call('INCRBY', KEYS[2], added) end
return applied
"""

# KEYS: models, then per state user, states. ARGV per state: name, model, record, state.
PUT_STATES = """
local stored = {}
for c = 1, (#KEYS - 1) / 2 do
  local at = (c - 1) * 4
  stored[c] = 0
  if redis.call('GET', KEYS[c * 2]) == ARGV[at + 3] then
    redis.call('HSET', KEYS[c * 2 + 1], ARGV[at + 1], ARGV[at + 4])
    redis.call('SADD', KEYS[1], ARGV[at + 2])
    stored[c] = 1
  end
end
return stored
"""

# KEYS: events, user, log, ids. ARGV: old record, new record, how many go, then the ids that go.
RETAIN = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[3], 0, tonumber(ARGV[3]) - 1)
for i = 4, #ARGV do redis.call('SREM', KEYS[4], ARGV[i]) end
redis.call('DECRBY', KEYS[1], ARGV[3])
return 1
"""

# KEYS: events, user, log, ids. ARGV: old record, new record, the event, its id.
RETRACT = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[3])
redis.call('SREM', KEYS[4], ARGV[4])
redis.call('DECRBY', KEYS[1], 1)
return 1
"""

# KEYS: events, users, models, user, log, ids, traces. ARGV: name, the beginning of the keys of states, a new value of traces.
FORGET = """
if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('SET', KEYS[7], ARGV[3]) end
local gone = redis.call('ZCARD', KEYS[5])
redis.call('UNLINK', KEYS[4], KEYS[5], KEYS[6])
redis.call('ZREM', KEYS[2], ARGV[1])
for _, model in ipairs(redis.call('SMEMBERS', KEYS[3])) do redis.call('HDEL', ARGV[2] .. model, ARGV[1]) end
if gone > 0 then redis.call('DECRBY', KEYS[1], gone) end
return gone
"""

# KEYS: a key. ARGV: the value that it must have.
DELETE_IF = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

# KEYS: states. ARGV: names. Returns the first 8 bytes of each state: its version.
VERSIONS = """
local versions = {}
for i, name in ipairs(ARGV) do versions[i] = string.sub(redis.call('HGET', KEYS[1], name) or '', 1, 8) end
return versions
"""


class Record(NamedTuple):
    """What is known of a user; `digest` is the sum of the checksums of the user's events, modulo 2^32."""

    version: int
    n_events: int
    last_time: int
    digest: int


def damaged(what: str) -> StoreDamaged:
    """Return the error for something that is not what was written."""
    return StoreDamaged(f"the Redis store is damaged (found in: {what}): keep a copy of its files and restore the last backup")


def owner_of(name: bytes) -> int:
    """Return a number for a user, to be part of checksums."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little", signed=True)


def pack_record(record: Record, name: bytes) -> bytes:
    """Return a user's record as bytes."""
    return _RECORD.pack(*record, checksum(record, name))


def unpack_record(packed: bytes | None, name: bytes) -> Record | None:
    """Return a user's record from bytes, None where there is none."""
    if packed is None:
        return None
    if len(packed) != _RECORD.size:
        raise damaged("users")
    *fields, expected = _RECORD.unpack(packed)
    record = Record(*fields)
    if checksum(record, name) != expected:
        raise damaged("users")
    return record


def pack_event(owner: int, time: int, arrival: int, item: bytes, event_id: bytes | None) -> tuple[bytes, int]:
    """Return an event as a member of the log, and its checksum."""
    expected = event_checksum(owner, time, arrival, item, event_id)
    head = _EVENT.pack(time + _BIAS, arrival, len(item), -1 if event_id is None else len(event_id), expected)
    return head + item + (event_id or b""), expected


def unpack_event(owner: int, packed: bytes) -> tuple[int, int, bytes, bytes | None, int]:
    """Return time, arrival, item, event id and checksum of a member of the log."""
    if len(packed) < _EVENT.size:
        raise damaged("events")
    biased, arrival, n_item, n_id, expected = _EVENT.unpack_from(packed)
    item, rest = packed[_EVENT.size : _EVENT.size + n_item], packed[_EVENT.size + n_item :]
    event_id = None if n_id < 0 else rest
    if len(item) != n_item or len(rest) != max(n_id, 0) or arrival >= _BIAS or event_checksum(owner, biased - _BIAS, arrival, item, event_id) != expected:
        raise damaged("events")
    return biased - _BIAS, arrival, item, event_id, expected


def first_at(time: int, arrival: int | None = None) -> bytes:
    """Return the bytes from which on a log's members are at or after a time, and at it from an arrival number on."""
    return struct.pack(">Q", time + _BIAS) + (b"" if arrival is None else struct.pack(">Q", arrival))


def pack_state(owner: int, model: bytes, version: int, state: bytes) -> bytes:
    """Return a state as bytes."""
    return _STATE.pack(version, checksum((owner, version), model, state)) + state


def unpack_state(owner: int, model: bytes, packed: bytes) -> tuple[int, bytes] | None:
    """Return a state's version and bytes, None if it is damaged."""
    if len(packed) < _STATE.size:
        return None
    version, expected = _STATE.unpack_from(packed)
    state = packed[_STATE.size :]
    return (version, state) if checksum((owner, version), model, state) == expected else None


def version_of(head: bytes) -> int:
    """Return the version from the first 8 bytes of a state, 0 where there is none."""
    return int.from_bytes(head, "little", signed=True) if len(head) == 8 else 0
