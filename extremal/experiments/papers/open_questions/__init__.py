"""Questions that the papers leave open, asked of the same code."""
