"""Benchmarks: engines and peers side by side in one process, checked before they are timed."""
