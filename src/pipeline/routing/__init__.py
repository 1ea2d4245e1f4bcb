"""Routers: one file each; a snapshot and the router's own ledger in, a decision out."""
