"""Matching: find the key that a query is a noisy picture of. What can be found at best is known exactly."""
