"""Placement: the tier stack, write policy, load or recompute."""
