from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.ids import Ids
from hcarec.ties import tie_key, tie_keys, tie_rank

ids_of_any_kind = st.lists(st.text(max_size=12), max_size=30)


@given(ids_of_any_kind)
def test_the_table_agrees_with_one_id_at_a_time(ids: list[str]) -> None:
    table = Ids.of(ids)
    assert tie_keys(table.blob, table.offsets).tolist() == [tie_key(item_id) for item_id in ids]


@pytest.mark.parametrize(
    ("item_id", "fnv"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_the_first_stage_is_the_published_fnv_1a(item_id: str, fnv: int) -> None:
    """The vectors are those published with the FNV hash; undoing the finaliser must give them back."""
    mask = (1 << 64) - 1

    def unshift(value: int, by: int) -> int:
        result = value
        for _ in range(64 // by + 1):
            result = value ^ result >> by
        return result

    key = unshift(tie_key(item_id), 31)
    key = unshift(key * pow(0x94D049BB133111EB, -1, 1 << 64) & mask, 27)
    key = unshift(key * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & mask, 30)
    assert key == fnv


def test_integers_and_texts_of_the_same_id_agree() -> None:
    assert tie_key(1234567890123456789012) == tie_key("1234567890123456789012") == tie_key(b"1234567890123456789012")
    assert tie_key("é") == tie_key("é".encode())


@given(ids_of_any_kind)
def test_rank_is_a_permutation_in_order_of_key_then_index(ids: list[str]) -> None:
    table = Ids.of(ids)
    rank = tie_rank(table.blob, table.offsets)
    assert rank.tolist() == np.argsort(sorted(range(len(ids)), key=lambda i: (tie_key(ids[i]), i))).tolist()


def test_consecutive_ids_are_well_mixed() -> None:
    """Every bit of the keys of 0..n-1 is set about half the time, and the order shows no trace of the number."""
    n = 20_000
    table = Ids.of(range(n))
    keys = tie_keys(table.blob, table.offsets)
    assert len(np.unique(keys)) == n
    shares = [float((keys >> np.uint64(bit) & np.uint64(1)).mean()) for bit in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 5 * 0.5 / n**0.5
    correlation = np.corrcoef(np.arange(n), tie_rank(table.blob, table.offsets))[0, 1]
    assert abs(correlation) < 5 / n**0.5
