"""The gradient flow: on the weights, or in stages in polar coordinates."""
