"""Certificates: radii below which no attack exists."""

from extremal.certify.certified_radius import Certificate, certificate, holds, radius

__all__ = ["Certificate", "certificate", "holds", "radius"]
