"""Certificates: radii below which no attack exists."""

from extremal.certify.certified_radius import (
    BATCH_POINTS,
    EFFORTS,
    Certificate,
    can_certify,
    certificate,
    holds,
    radius,
)

__all__ = [
    "BATCH_POINTS",
    "EFFORTS",
    "Certificate",
    "can_certify",
    "certificate",
    "holds",
    "radius",
]
