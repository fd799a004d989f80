"""The six score functions: what they cost, what they learn, and when to use which."""
