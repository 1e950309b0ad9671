"""Certificates: radii below which no attack exists."""

from extremal.certify.certified_radius import (
    EFFORTS,
    Certificate,
    can_certify,
    certificate,
    holds,
    radius,
)

__all__ = [
    "EFFORTS",
    "Certificate",
    "can_certify",
    "certificate",
    "holds",
    "radius",
]
