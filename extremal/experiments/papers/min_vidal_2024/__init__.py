"""Min & Vidal 2024, "Can Implicit Bias Imply Adversarial Robustness?" (ICML)."""
