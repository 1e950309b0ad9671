"""Li, Pan, Lyu & Li 2025, "Feature averaging: an implicit bias of gradient descent"."""
