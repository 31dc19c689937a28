"""The weights for explanations, against the specification."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hcarec.ops import attention as module
from hcarec.ops import reference
from hcarec.ops.attention import attention
from hcarec.ops.parameters import Theta, initialise, shapes


def theta_of(d: int, w_x: int, w_h: int, seed: int) -> Theta:
    drawn = initialise(shapes(11, d, w_x, w_h), seed)
    return {name: (value * 3).astype(np.float32) for name, value in drawn.items()}  # large enough for weights to differ


def right(theta: Theta, items: np.ndarray, w_x: int, w_h: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    own = {name: torch.from_numpy(value).double() for name, value in theta.items()}
    h, a_x = reference.hidden(own, torch.from_numpy(items).long(), w_x)
    _, a_h = reference.interest(own, h, w_h)
    return None if a_x is None else a_x.numpy(), None if a_h is None else a_h.numpy()


@settings(max_examples=40)
@given(d=st.integers(1, 9), w_x=st.integers(1, 5), w_h=st.integers(1, 5), n=st.integers(1, 14), last=st.integers(1, 16), seed=st.integers(0, 9))
def test_weights_are_those_of_the_specification(d: int, w_x: int, w_h: int, n: int, last: int, seed: int) -> None:
    theta, items = theta_of(d, w_x, w_h, seed), np.random.default_rng(seed).integers(0, 11, n).astype(np.int32)
    for found, expected in zip(attention(theta, items, w_x, w_h, last), right(theta, items, w_x, w_h), strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            np.testing.assert_allclose(found, expected[-last:], rtol=1e-11)
            assert len(found) == min(last, n)


@pytest.mark.parametrize(("w_x", "w_h"), [(3, 4), (1, 3), (4, 1), (1, 1)])
def test_a_long_history_is_begun_by_the_engine(w_x: int, w_h: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT", 5)
    monkeypatch.setattr(module, "CHUNK", 7)
    theta, items = theta_of(6, w_x, w_h, 3), np.random.default_rng(0).integers(0, 11, 40).astype(np.int32)
    for last in (1, 5, 20, 40):
        for found, expected in zip(attention(theta, items, w_x, w_h, last), right(theta, items, w_x, w_h), strict=True):
            if found is not None and expected is not None:
                np.testing.assert_allclose(found, expected[-last:], rtol=1e-4)
                assert len(found) == last
