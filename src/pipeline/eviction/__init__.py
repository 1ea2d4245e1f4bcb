"""Eviction policies: one file each over shared compiled arrays."""
