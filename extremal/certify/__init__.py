"""Certificates: radii below which no attack exists."""

from extremal.certify.radius import Certificate, certificate, radius

__all__ = ["Certificate", "certificate", "radius"]
