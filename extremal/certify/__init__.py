"""Certificates: radii below which no attack exists."""

from extremal.certify.certified_radius import (
    CERTIFY_BATCH_POINTS,
    EFFORTS,
    Certificate,
    can_certify,
    certificate,
    holds,
    radius,
)

__all__ = [
    "CERTIFY_BATCH_POINTS",
    "EFFORTS",
    "Certificate",
    "can_certify",
    "certificate",
    "holds",
    "radius",
]
