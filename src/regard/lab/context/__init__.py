"""Context: one word in many sentences, and what a model that has read them makes of it."""
