"""Corrections of some items' scores: the contract (`corrections`) and its ranking kernels."""
