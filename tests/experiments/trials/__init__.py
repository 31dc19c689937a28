"""Tests of `hcarec.experiments.trials`: a package, so that file names are free to repeat others."""
