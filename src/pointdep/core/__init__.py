"""Pure functions and small modules: objectives, read-outs, the table of methods, critics, transforms."""
