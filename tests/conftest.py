"""Settings that every test shares."""

import os

# Keras reads this once, when it is first imported.
os.environ["KERAS_BACKEND"] = "torch"

import hypothesis
import torch

# Processes share the cores; within one, a fixed number of threads also fixes the order of sums.
torch.set_num_threads(1)

# No deadline: the first example of a test pays for imports. With CI set, the same examples on every run.
hypothesis.settings.register_profile("regard", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("regard")
