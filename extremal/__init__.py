"""extremal."""
