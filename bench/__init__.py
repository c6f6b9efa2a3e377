"""Load tests: `make bench`."""
