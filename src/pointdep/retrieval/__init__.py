"""Which y belongs to this x: search by PMI, and how good a search is."""
