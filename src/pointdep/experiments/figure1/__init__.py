"""Figure 1 of the paper: ten estimators of mutual information on pairs of known dependence."""
