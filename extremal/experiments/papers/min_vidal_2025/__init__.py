"""Min & Vidal 2025, "Gradient flow provably learns robust classifiers for orthonormal GMMs"."""
