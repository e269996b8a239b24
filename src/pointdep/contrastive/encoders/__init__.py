"""Encoders: RealNVP (shallow), AMDIM with its global-to-local costs (deep), ResNet (SimCLR)."""
