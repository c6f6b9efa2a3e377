"""The parts of the bench: each measures one thing and returns the rows of its table."""
