"""One file for each experiment of the lab."""
