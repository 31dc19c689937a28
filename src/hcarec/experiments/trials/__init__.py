"""Contest and ablation: leave-one-out trials of many methods on many logs, in pieces."""
