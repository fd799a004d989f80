"""Relations: items that want what other items hold, and a layer of attention that learns to fetch it."""
