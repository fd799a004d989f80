"""Summary: sizes, parameters and floating-point operations of an attention layer, in the words of the field."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """One layer over n queries and m keys; a multiply and add count two, softmax and dropout are left out."""

    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    d_v: int
    parameters: dict[str, int]
    queries: int
    keys: int
    flops: dict[str, int]

    @property
    def total_parameters(self) -> int:
        """All parameters."""
        return sum(self.parameters.values())

    @property
    def total_flops(self) -> int:
        """All operations of one forward pass, for one batch row."""
        return sum(self.flops.values())

    def __str__(self) -> str:
        rows = [
            ("d_model", "width of inputs and outputs", f"{self.d_model:,}"),
            ("h", "heads" if self.kv_heads == self.heads else f"heads over {self.kv_heads} of keys", f"{self.heads:,}"),
            ("d_k", "width of a query and key in a head", f"{self.d_k:,}"),
            ("d_v", "width of a value in a head", f"{self.d_v:,}"),
            ("n", "queries" if self.keys == self.queries else f"queries over {self.keys:,} keys", f"{self.queries:,}"),
            *(("", f"parameters of {name}", f"{count:,}") for name, count in self.parameters.items()),
            ("", "parameters", f"{self.total_parameters:,}"),
            *(("", f"FLOPs of {name}", f"{count:,}") for name, count in self.flops.items()),
            ("", "FLOPs", f"{self.total_flops:,}"),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)
