"""What `make docs` adds to mkdocs."""
