"""Downloads: mirrors, caches, checksums, and package registries as sources."""
