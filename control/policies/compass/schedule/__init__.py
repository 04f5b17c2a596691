"""Schedule all sessions together on tiers of shared GPUs: relaxation, rounding, and references."""
