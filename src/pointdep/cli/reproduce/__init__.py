"""``pointdep reproduce``: figures and tables of the paper."""
