"""The network with all its options: parameters, specification, and differentiable torch code."""
