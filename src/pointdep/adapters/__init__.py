"""PMI by models that were trained elsewhere: their logits, calibrated on held-out pairs."""
