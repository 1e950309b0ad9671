"""What trials and records of several papers share."""
