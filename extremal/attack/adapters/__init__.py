"""Other libraries' attacks through this package's interface."""
