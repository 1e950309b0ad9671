"""Attacks that use the form of a two-layer network: linear pieces, boundaries, silent neurons."""
