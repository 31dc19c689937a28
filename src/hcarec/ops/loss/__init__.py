"""Full cross-entropy over the catalog, without the matrix of logits.

`numba` computes the loss and its gradients on a CPU, `triton` on a GPU; `torch` makes it a
differentiable function, with plain operations as a third way.
`hcarec.ops.reference.cross_entropy` is the specification.

With e_pi = exp(s_pi - m_p) and S_p = sum_i e_pi, the gradients are
dH_p = sum_i e_pi Z_i / S_p - Z_target and dZ_i = sum_p e_pi H_p / S_p - sum_{p: target i} H_p,
both divided by the number of positions. On a CPU a block of positions goes over the catalog twice,
a chunk of ITEMS items at a time:

- `positions` computes logits, exponentials, sums and dH of a chunk while it lies in the cache. Each
  position is on its own.
- `items` reads the exponentials of the block again and adds to dZ, which needs all of S_p. Each
  item is on its own.

These are three products, and no logit is computed twice. The exponentials of a block,
e (n_chunks, positions, ITEMS), are the one large array. m_p grows from chunk to chunk; `shifts`
(n_chunks, positions) keeps the m_p that a chunk was computed with.
"""
