"""The price of a pattern: what stacked layers can reach, computed and trained."""
