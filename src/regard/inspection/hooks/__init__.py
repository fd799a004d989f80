"""Hooks: where attention calls inside any PyTorch model are intercepted, parsed and rerun with changes."""
