"""Vision: pictures the package draws itself, and three small models that look at them with attention."""
