"""How it is computed: engines behind one function."""
