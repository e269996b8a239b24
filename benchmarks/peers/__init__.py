"""The peer libraries, each in its own environment, beside ours on the same arrays."""
