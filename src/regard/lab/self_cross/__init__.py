"""Self against cross attention: laws that hold for any weights, and what a trained model makes of either."""
