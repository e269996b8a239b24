"""Pure functions and small modules: objectives, read-outs, methods, critics, transforms."""
