"""Figure 2 of the paper and its SimCLR comparison: what objectives make of the same encoder."""
