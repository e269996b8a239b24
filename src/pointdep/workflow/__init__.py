"""How estimates enter other work: as features, as scores, as rankings, and side by side."""
