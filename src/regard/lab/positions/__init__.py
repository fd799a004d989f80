"""Positions: the schemes that tell attention where a token stands, and a task that needs to know it."""
