"""Li & Li 2025, "Adversarial training can provably improve robustness", on patch data."""
