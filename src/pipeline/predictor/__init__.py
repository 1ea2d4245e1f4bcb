"""Execution-time predictors: samples in, a compiled look-up of step times out."""
