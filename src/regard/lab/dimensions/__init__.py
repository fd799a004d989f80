"""Dimensions: how known models cut their width into heads."""
