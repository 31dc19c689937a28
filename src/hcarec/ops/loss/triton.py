"""Full cross-entropy over the catalog on a GPU, as a torch operator, without the logits.

Four products instead of three: `positions_kernel` computes logits, their exponentials and dH in
one go, segment by segment of the catalog; `items_kernel` computes the logits again for dZ, once
the sums of the exponentials are known.

Corrections must not be a difference of large numbers: where a position's greatest logit is made
small by its correction, nothing of the sum would be left. So the first pass leaves out every item
that some position of the tile corrects, and `corrected_kernel` goes through those items alone.
In the second pass a weight is at most 1, hence the difference is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from hcarec.ops.loss import triton_kernels as dense
from hcarec.ops.loss import triton_pairs as pairs

_INTERPRETED = triton.knobs.runtime.interpret  # as when the kernels were made: slow, for tests
_WAVES = 8  # programs of the first pass per multiprocessor, about
_CORRECTED_PARTS = 4  # programs that share the corrected items of a tile
_WORD = 32


class Tile(NamedTuple):
    """The size of a tile, and how many warps and stages of a pipeline work on it."""

    rows: int
    columns: int
    warps: int
    stages: int

    def shared(self, precision: str, D: int) -> int:
        """Return the bytes of shared memory that rows and columns take, about."""
        if precision == "bf16":
            return 2 * D * (self.rows + self.stages * self.columns)
        if precision == "tf32":  # each tile of columns also transposed
            return 4 * D * (self.rows + 2 * self.stages * self.columns)
        # Beside the terms that products are split into.
        return 4 * D * (2 * self.rows + (self.stages + 1) * self.columns)


# The greatest D of each, the fastest first: measured on an H200, smaller ones for smaller cards.
_TILES = {
    "bf16": {
        Tile(64, 64, 4, 3): 128,
        Tile(128, 64, 8, 2): 256,
        Tile(64, 32, 8, 2): 512,
        Tile(16, 32, 4, 1): 512,
    },
    "tf32": {
        Tile(128, 64, 8, 2): 128,
        Tile(64, 32, 8, 2): 256,
        Tile(32, 32, 8, 1): 512,
        Tile(16, 32, 4, 1): 512,
    },
    "float32": {
        Tile(128, 32, 8, 2): 128,
        Tile(64, 32, 8, 1): 256,
        Tile(16, 32, 8, 1): 512,
    },
}


def _tile(precision: str, D: int, shared: int) -> Tile | None:
    """Return the first tile that is made for D and fits into `shared` bytes."""
    for tile, greatest in _TILES[precision].items():
        if greatest >= D and tile.shared(precision, D) <= shared:
            return tile
    return None


@torch.compiler.assume_constant_result
def _device(device: torch.device) -> tuple[int, int]:
    """Return the number of multiprocessors and the bytes of shared memory of a block."""
    if device.type != "cuda":  # Triton's interpreter
        return 2, 1 << 18
    found: Any = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, found.shared_memory_per_block_optin


def _width(d: int) -> int:
    return max(16, triton.next_power_of_2(d))


def obstacle(H: Tensor, Z: Tensor) -> str | None:
    """Return why the kernels cannot run on these tensors, or None."""
    for tensor in (H, Z):
        if tensor.device.type != "cuda" and not _INTERPRETED:
            return f"got a tensor on {tensor.device}: it takes tensors on a GPU"
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            return f"got {tensor.dtype}: it takes float32, bfloat16 and float16"
    d, precision = H.shape[1], precision_of(H, Z)
    if _tile(precision, _width(d), _device(H.device)[1]) is None:
        return f"got d = {d} in {precision}: it takes d up to 512, or less on a small card"
    return None


class _Pass(NamedTuple):
    """What both passes need to know: factors as the products read them, and sizes."""

    H: Tensor
    Z: Tensor
    d: int
    D: int
    tile: Tile
    precision: str

    @property
    def transposed(self) -> bool:
        """Say whether the second product reads a transposed copy."""
        return self.precision == "tf32"

    @property
    def products(self) -> str:
        """Return what Triton is asked for: of float32, three terms of bfloat16 each.

        Terms of tf32 are cut off toward zero on the chip, which adds up: at d = 300 gradients were
        off by 1.4e-5. The interpreter multiplies exactly, whatever it is asked for.
        """
        if self.precision == "float32":
            return "tf32x3" if self.H.device.type != "cuda" else "bf16x6"
        return "tf32"

    def constants(self, corrected: bool) -> dict[str, Any]:
        """Return the constants of a dense kernel."""
        return {
            "d": self.d, "D": self.D, "ROWS": self.tile.rows, "COLUMNS": self.tile.columns,
            "PRECISION": self.products,
            "TRANSPOSED": self.transposed, "CORRECTED": corrected, "STAGES": self.tile.stages,
            "num_warps": self.tile.warps,
        }  # fmt: skip


def _prepare(H: Tensor, Z: Tensor, precision: str) -> _Pass:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    H, Z = (rows.to(dtype).contiguous() for rows in (H, Z))
    if precision == "tf32":
        H, Z = _round(H), _round(Z)
    d = H.shape[1]
    tile = _tile(precision, _width(d), _device(H.device)[1])
    assert tile is not None, (precision, d)
    return _Pass(H, Z, d, _width(d), tile, precision)


def _round(factors: Tensor) -> Tensor:
    """Round float32 to the bits that products in tf32 read: the chip itself cuts them off."""
    rounded = ((factors.view(torch.int32) + (1 << 12)) & -(1 << 13)).view(torch.float32)
    return torch.where(factors.isfinite(), rounded, factors)  # the sum may wrap around for NaN


def _transpose(one: _Pass) -> Tensor:
    """Return Z (n, d) as (d, n'), n' being whole tiles, padded with zeros."""
    n, columns = len(one.Z), one.tile.columns
    n_tiles = triton.cdiv(n, columns)
    out = one.Z.new_empty(one.d, n_tiles * columns)
    dense.transpose_kernel[(n_tiles,)](
        one.Z, out, n, out.shape[1], one.d, one.D, columns, num_warps=8
    )
    return out


class _Excluded(NamedTuple):
    """The items that some position of a tile corrects; see `corrected_kernel`."""

    bits: Tensor
    items: Tensor
    values: Tensor
    begins: Tensor


def _exclude(corrections: tuple[Tensor, ...], n_items: int, rows: int) -> _Excluded:
    items, offsets, values = corrections
    n, n_positions, device = len(items), len(offsets) - 1, items.device
    n_tiles = triton.cdiv(n_positions, rows)
    positions = _positions(offsets, n)
    end = n_tiles * n_items
    keys = torch.where(items < n_items, positions // rows * n_items + items, end)
    if end < 1 << 31:
        keys = keys.int()  # sorted in half the time
    keys, order = keys.sort()
    ranks = torch.zeros(n + 1, dtype=torch.int64, device=device)
    ranks[2:] = keys[1:] != keys[:-1]
    ranks = ranks.cumsum(0)  # ranks[k + 1] is that of the k-th key
    firsts = (torch.arange(n_tiles + 1, device=device) * rows).clamp_(max=n_positions)
    begins = offsets[firsts]
    n_words = triton.cdiv(n_items, _WORD) + 2  # a tile reads two words
    found = _Excluded(
        torch.zeros(n_tiles, n_words, dtype=torch.int32, device=device),
        torch.zeros(n, dtype=torch.int32, device=device),
        torch.zeros(n, rows, dtype=torch.float32, device=device),
        (ranks[begins] + 1) * (begins > 0),
    )
    block = 128
    pairs.spread_kernel[(triton.cdiv(n, block),)](
        keys, ranks[1:], order, positions, values, found.items, found.values, found.bits,
        n, end, n_items, n_words, rows, block,
    )  # fmt: skip
    return found


def _positions(offsets: Tensor, n: int) -> Tensor:
    """Return the position of each of the n corrections; behind the last offset there is none."""
    return torch.searchsorted(offsets, torch.arange(n, device=offsets.device), right=True) - 1


def _counted(targets: Tensor) -> Tensor:
    """Return the number of positions that have a target, as float32."""
    return (targets >= 0).sum(dtype=torch.float32)


def _segments(n_positions: int, n_items: int, tile: Tile, n_processors: int) -> tuple[int, int]:
    """Return the number of segments of the catalog, and the items of each."""
    n_tiles = triton.cdiv(n_positions, tile.rows)
    wanted = max(1, _WAVES * n_processors // n_tiles)
    size = triton.cdiv(triton.cdiv(n_items, wanted), tile.columns) * tile.columns
    return triton.cdiv(n_items, size), size


@torch.library.custom_op("hcarec::cross_entropy", mutates_args=())
def forward(
    H: Tensor, Z: Tensor, targets: Tensor, items: Tensor, offsets: Tensor, values: Tensor,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the mean loss, its dH (P, d), and log2 of the sums of exponentials (P,), float32."""
    one = _prepare(H, Z, precision)
    (n_positions, d), n_items, tile = H.shape, len(Z), one.tile
    n_tiles, corrected = triton.cdiv(n_positions, tile.rows), len(items) > 0
    n_segments, segment = _segments(n_positions, n_items, tile, _device(H.device)[0])
    n_parts = n_segments + _CORRECTED_PARTS * corrected
    maxima, sums = H.new_empty(2, n_parts, n_positions, dtype=torch.float32)
    parts = H.new_empty(n_parts, n_positions, d, dtype=torch.float32)
    found = _exclude((items, offsets, values), n_items, tile.rows) if corrected else None
    bits = offsets if found is None else found.bits  # any tensor where it is not read
    across = _transpose(one) if one.transposed else one.Z
    dense.positions_kernel[(n_tiles, n_segments)](
        one.H, one.Z, across, bits, maxima, sums, parts,
        n_positions, n_items, across.shape[1], bits.shape[-1], segment, **one.constants(corrected),
    )  # fmt: skip
    del across
    if found is not None:
        constants = one.constants(corrected)
        for name in ("TRANSPOSED", "CORRECTED", "STAGES"):
            del constants[name]
        dense.corrected_kernel[(n_tiles, _CORRECTED_PARTS)](
            one.H, one.Z, found.items, found.values, found.begins, maxima, sums, parts,
            n_positions, n_items, n_segments, **constants,
        )  # fmt: skip
    counted = _counted(targets)
    lse, losses = H.new_empty(2, n_positions, dtype=torch.float32)
    dH = H.new_empty(n_positions, d, dtype=torch.float32)
    pairs.combine_kernel[(n_positions,)](
        one.H, one.Z, targets, counted, items, offsets, values, maxima, sums, parts, n_parts,
        n_positions, n_items, lse, losses, dH, d, one.D, precision,
    )  # fmt: skip
    mean = losses.sum(dtype=torch.float64) / counted
    return mean.float(), dH, lse.clone()


@torch.library.custom_op("hcarec::cross_entropy_backward", mutates_args=())
def backward(
    grad: Tensor, H: Tensor, Z: Tensor, targets: Tensor, items: Tensor, offsets: Tensor,
    values: Tensor, lse: Tensor, precision: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return dZ (n_items, d) in the type of Z, and dvalues (n,), both times `grad`."""
    one = _prepare(H, Z, precision)
    (n_positions, d), n_items, n, tile = H.shape, len(Z), len(items), one.tile
    scale = (grad / _counted(targets)).float()
    n_padded = triton.cdiv(n_positions, tile.columns) * tile.columns
    padded = one.H.new_zeros(n_padded, d)
    padded[:n_positions] = one.H
    across = padded.T.contiguous() if one.transposed else padded
    shifts = lse.new_full((n_padded,), torch.inf)
    shifts[:n_positions] = lse
    dZ = torch.empty_like(Z, memory_format=torch.contiguous_format)
    dvalues = torch.zeros_like(values, memory_format=torch.contiguous_format)
    dense.items_kernel[(triton.cdiv(n_items, tile.rows),)](
        one.Z, padded, across, shifts, scale, dZ, n_items, n_padded, **one.constants(n > 0)
    )
    slopes = lse.new_full((n + n_positions,), -1)
    if n:
        pairs.slopes_kernel[(n_positions,)](
            one.H, one.Z, targets, items, offsets, values, lse, scale, dvalues, slopes, n_items,
            d, one.D, precision,
        )  # fmt: skip
    positions = torch.cat([_positions(offsets, n), torch.arange(n_positions, device=H.device)])
    pair_items, order = torch.cat([items, targets.int()]).sort(stable=True)
    pairs.add_kernel[(n + n_positions,)](
        one.H, pair_items, order, positions, slopes, scale, dZ, n + n_positions, n_positions,
        n_items, d, one.D, num_warps=1,
    )  # fmt: skip
    return dZ, dvalues


@forward.register_fake
def _(H: Tensor, Z: Tensor, targets: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    kind = torch.float32
    dH = torch.empty_like(H, dtype=kind, memory_format=torch.contiguous_format)
    return H.new_empty((), dtype=kind), dH, H.new_empty(H.shape[0], dtype=kind)


@backward.register_fake
def _(grad: Tensor, H: Tensor, Z: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    kind = torch.contiguous_format
    return torch.empty_like(Z, memory_format=kind), torch.empty_like(rest[3], memory_format=kind)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.precision = inputs
    _, dH, lse = output
    ctx.save_for_backward(*tensors, dH, lse)
    ctx.mark_non_differentiable(dH, lse)


def _differentiate(ctx: Any, grad: Tensor, *_: Any) -> Any:
    *tensors, dH, lse = ctx.saved_tensors
    dZ = dvalues = None
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[5]:
        dZ, dvalues = backward(grad, *tensors, lse, ctx.precision)
    return (dH * grad).to(tensors[0].dtype), dZ, None, None, None, dvalues, None


forward.register_autograd(_differentiate, setup_context=_save)


@torch.compiler.assume_constant_result
def _float32_precision() -> str:
    return "float32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def precision_of(H: Tensor, Z: Tensor) -> str:
    """Return how products are computed: "bf16", "tf32" or "float32".

    bfloat16 vectors or autocast to it ask for bf16. Otherwise torch's float32 matmul precision
    decides: "highest" is float32, "high" and "medium" are tf32.
    """
    kind = H.device.type
    types = {H.dtype, Z.dtype}
    if torch.is_autocast_enabled(kind):
        types = {torch.get_autocast_dtype(kind)}
    if types == {torch.bfloat16}:
        return "bf16"
    return _float32_precision()


def cross_entropy(
    H: Tensor, Z: Tensor, targets: Tensor, corrections: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Return the mean loss, differentiable; see `hcarec.ops.loss.torch.cross_entropy`."""
    return forward(H, Z, targets, *corrections, precision_of(H, Z))[0]
