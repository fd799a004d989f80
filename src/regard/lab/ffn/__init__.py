"""Attention and feed-forward layers, each alone and both together, on tasks that need the one, the other or both."""
