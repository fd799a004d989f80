"""Projection: what W_O does to the outputs of heads, at random and in trained layers."""
