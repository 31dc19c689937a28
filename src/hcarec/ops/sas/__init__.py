"""SASRec: parameters, differentiable torch code, and the serving engine."""
