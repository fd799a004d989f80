"""Induction: a small attention-only model that learns to go on with what it has seen before."""
