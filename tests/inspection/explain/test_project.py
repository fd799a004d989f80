"""project: rows times matrices, heads by broadcasting, memory for cross attention."""

import pytest
import torch

from regard.inspection.explain import explain, project


def numbers(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def test_it_is_x_times_the_matrix() -> None:
    x, weights = numbers(3, 5), [numbers(5, 2), numbers(5, 2), numbers(5, 7)]
    found = project(x, *weights)
    for result, weight in zip((found.query, found.key, found.value), weights, strict=True):
        assert torch.equal(result, x @ weight)


def test_keys_and_values_come_from_the_memory() -> None:
    x, memory = numbers(3, 5), numbers(4, 6)
    found = project(x, numbers(5, 2), numbers(6, 2), numbers(6, 7), memory=memory)
    assert torch.equal(found.key, memory @ numbers(6, 2))
    explanation = explain(found, query_tokens=["a", "b", "c"])
    assert explanation.steps[0].sentence == "One row per token: X asks, the memory M answers."
    assert [step.formula.text for step in explanation.steps[1:4] if step.formula] == [
        "Q = X·W_Q",
        "K = M·W_K",
        "V = M·W_V",
    ]
    assert explanation.weights.columns == ("k0", "k1", "k2", "k3")


def test_tokens_of_self_attention_name_the_keys_too() -> None:
    found = project(numbers(2, 5), numbers(5, 2), numbers(5, 2), numbers(5, 2))
    assert explain(found, query_tokens=["a", "b"]).weights.columns == ("a", "b")
    assert explain(found).weights.columns == ("x0", "x1")


def test_one_matrix_per_head() -> None:
    x = numbers(2, 1, 3, 5)
    found = project(x, numbers(4, 5, 2), numbers(2, 5, 2), numbers(2, 5, 7))
    assert found.query.shape == (2, 4, 3, 2)
    explanation = explain(found, batch=1, head=3)
    shown = {table.name.text: table.values for step in explanation.steps[1:4] for table in step.tables}
    for name, weight, head in (("W_Q", found.w_query, 3), ("W_K", found.w_key, 1), ("W_V", found.w_value, 1)):
        assert [list(row) for row in shown[name]] == weight[head].tolist()
    assert [list(row) for row in shown["K"]] == found.key[1, 1].tolist()


def test_what_is_refused() -> None:
    good = numbers(5, 2)
    with pytest.raises(
        ValueError, match=r"w_key must have 5 rows, one per column of x \(3, 5\), got shape \(2, 5\); tokens"
    ):
        project(numbers(3, 5), good, numbers(2, 5), good)
    with pytest.raises(ValueError, match=r"w_value must have 4 rows, one per column of memory \(3, 4\)"):
        project(numbers(3, 5), good, numbers(4, 2), good, memory=numbers(3, 4))
    with pytest.raises(ValueError, match=r"x must have one row per token, \(length, width\), got shape \(5,\)"):
        project(numbers(5), good, good, good)
    with pytest.raises(ValueError, match="w_query must be a matrix"):
        project(numbers(3, 5), numbers(5), good, good)
    with pytest.raises(ValueError, match="different numbers of heads"):
        project(numbers(3, 3, 5), numbers(2, 5, 2), good, good)
    with pytest.raises(TypeError, match="x, w_query must share one dtype"):
        project(numbers(3, 5).double(), good, good, good)
    with pytest.raises(TypeError, match="x must be float32"):
        project(torch.ones(3, 5, dtype=torch.int64), good, good, good)
