"""Names, shapes and first values of the parameters, and the choice of a back-end."""

from __future__ import annotations

import numpy as np
import pytest

from hcarec import ops
from hcarec.errors import ConfigError
from hcarec.ops import layout, parameters


def test_a_level_that_is_off_has_no_parameters() -> None:
    assert set(parameters.shapes(9, 4, 1, 1)) == {"X", "U", "W", "b"}
    assert set(parameters.shapes(9, 4, 3, 1)) == {"X", "U", "W", "b", "V", "Q_x", "r_x"}
    assert set(parameters.shapes(9, 4, 1, 3)) == {"X", "U", "W", "b", "Q_h", "r_h", "E", "F"}
    assert parameters.shapes(9, 4, 2, 2)["V"] == (3, 4, 4)


def test_values_are_uniform_and_each_parameter_has_its_own_stream() -> None:
    small = parameters.initialise(parameters.shapes(500, 8, 1, 1), 7)
    large = parameters.initialise(parameters.shapes(500, 8, 3, 5), 7)
    for name, value in small.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, large[name])
    X = small["X"].ravel()
    assert -0.5 <= X.min() < -0.49 and 0.49 < X.max() <= 0.5
    counts, _ = np.histogram(X, bins=8, range=(-0.5, 0.5))
    assert ((counts - 500) ** 2 / 500).sum() < 24.3  # chi-squared, 7 degrees of freedom, p = 0.001
    assert not np.array_equal(large["U"], large["W"])
    assert not np.array_equal(small["X"], parameters.initialise({"X": (500, 8)}, 8)["X"])


@pytest.mark.parametrize("d", [1, 5, 8, 20, 33])
@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (2, 1), (1, 2), (3, 4)])
def test_packing_round_trips(d: int, w_x: int, w_h: int) -> None:
    theta = parameters.initialise(parameters.shapes(4, d, w_x, w_h), 1)
    packed = layout.pack(theta, w_x, w_h)
    assert packed.X is theta["X"]
    back = layout.unpack(packed.dense, d, w_x, w_h)
    assert set(back) == set(theta) - {"X"}
    for name, value in back.items():
        np.testing.assert_array_equal(value, theta[name])
    squares = sum(np.square(value, dtype=np.float64).sum() for value in back.values())
    assert np.square(packed.dense, dtype=np.float64).sum() == pytest.approx(squares)  # the padding is zero


def test_back_ends_by_name() -> None:
    assert ops.backend("reference").__name__ == "hcarec.ops.reference"
    assert ops.backend("cpu").__name__ == "hcarec.ops.cpu"
    with pytest.raises(ConfigError, match=r"back-end 'cpuu' is not known: give one of cpu, reference; did you mean 'cpu'"):
        ops.backend("cpuu")


def test_a_back_end_that_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "BACKENDS", ("missing",))
    with pytest.raises(ConfigError, match="back-end 'missing' cannot run here"):
        ops.backend("missing")
