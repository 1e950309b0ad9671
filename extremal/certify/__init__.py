"""Certificates: radii below which no attack exists."""

from extremal.certify.radius import Certificate, certificate, holds, radius

__all__ = ["Certificate", "certificate", "holds", "radius"]
