"""Frozen networks that turn images into features."""
