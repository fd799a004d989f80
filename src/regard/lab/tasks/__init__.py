"""Training tasks that several experiments share."""
