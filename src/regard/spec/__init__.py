"""What is computed: scores, masks, biases, positions, normalizers, dropout. No engine, no pictures."""
