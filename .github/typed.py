"""Type-checked against an installed wheel, in strict mode: the package tells its types."""

import torch

import regard

query = torch.ones(1, 1, 3, 2)
out: torch.Tensor = regard.attend(query, query, query, mask="causal")
entropy: torch.Tensor = regard.matrix(query, query).entropy()
head: regard.AttentionMatrix = regard.matrix(query, query)[0, 0]
