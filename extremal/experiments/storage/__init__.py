"""Where results are kept: one file a trial, found again after any crash."""
