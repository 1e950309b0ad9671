"""Gradient flow of small problems, with a proof of where it goes."""
