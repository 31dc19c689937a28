"""Tests of `hcarec.experiments`."""
