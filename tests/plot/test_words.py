"""Words: which tokens belong together in each kind of vocabulary, and weights that still add up."""

import pytest
import torch

import regard
from regard.plot.words import words, words_of


@pytest.mark.parametrize(
    "tokens, wanted",
    [
        (["[CLS]", "un", "##believ", "##able", ".", "[SEP]"], ["[CLS]", "unbelievable", ".", "[SEP]"]),
        (["▁The", "▁un", "believ", "able", ",", "▁yes", "</s>"], ["The", "unbelievable", ",", "yes", "</s>"]),
        (["▁", "the", "▁cat"], ["the", "cat"]),
        (["The", "Ġcat", "Ġsle", "eps", ".", "Ċ", "ĠIt", "'s"], ["The", "cat", "sleeps", ".", "\n", "It", "'s"]),
        (["Hi", "ĠcafÃ©", "Ġä½", "ł", "å¥½", "<|end|>"], ["Hi", "café", "你", "好", "<|end|>"]),
        (["The", " cat", " sle", "eps", "\n"], ["The", "cat", "sleeps", "\n"]),
        (["a", "b", "c"], ["a", "b", "c"]),
        (["  ", "x", "##y"], ["  ", "xy"]),
        (["▁私", "は", "猫"], ["私", "は", "猫"]),
        (["##ing", "##ly"], ["ingly"]),
        (["##", "Ġheading"], ["##", "heading"]),
        ([], []),
    ],
)
def test_words_of_every_vocabulary(tokens: list[str], wanted: list[str]) -> None:
    found = words_of(tokens)
    assert list(found.texts) == wanted
    assert len(found.starts) == len(wanted)
    assert sorted(set(found.starts)) == list(found.starts)
    assert found.starts[:1] == (0,) * bool(tokens)


def test_weights_between_words_are_the_mean_of_sums() -> None:
    torch.manual_seed(0)
    tokens = ["[CLS]", "un", "##believ", "##able", "cat", "##s"]
    q, k = torch.randn(2, 3, 6, 8), torch.randn(2, 3, 6, 8)
    given = regard.matrix(q, k, mask="causal", query_tokens=tokens, key_tokens=tokens)
    found = words(given)
    assert found.query_tokens == found.key_tokens == ("[CLS]", "unbelievable", "cats")
    dense, spans = given.dense(), [slice(0, 1), slice(1, 4), slice(4, 6)]
    wanted = torch.stack([torch.stack([dense[..., i, j].sum(-1).mean(-1) for j in spans], -1) for i in spans], -2)
    torch.testing.assert_close(found.dense(), wanted)
    torch.testing.assert_close(found.rowsum(), torch.ones(2, 3, 3))


def test_a_long_matrix_is_merged_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3000
    tokens = [("##" if n % 3 else "") + "x" for n in range(count)]
    torch.manual_seed(1)
    given = regard.matrix(*torch.randn(2, 1, 1, count, 4), mask="causal", query_tokens=tokens, key_tokens=tokens)
    found = words(given)
    assert found.shape == (1, 1, 1000, 1000)
    part = given[0, 0, 2400:2403, 300:303].sum(-1).mean()
    torch.testing.assert_close(found[0, 0, 800, 100], part)
    torch.testing.assert_close(found.rowsum(), torch.ones(1, 1, 1000))


def test_one_side_of_words() -> None:
    weights = torch.tensor([[0.25, 0.5, 0.25]])
    found = words(regard.AttentionMatrix.from_weights(weights, None, ["un", "##do", "it"]))
    assert found.dense().tolist() == [[0.75, 0.25]]
    assert (found.query_tokens, found.key_tokens) == (None, ("undo", "it"))


def test_what_cannot_be_merged_says_why() -> None:
    with pytest.raises(ValueError, match="words are made of tokens, and this matrix has none"):
        words(regard.AttentionMatrix.from_weights(torch.eye(2)))
    tokens = ["x"] * 10_000
    long = regard.matrix(*torch.zeros(2, 1, 1, 10_000, 1), query_tokens=tokens, key_tokens=tokens)
    with pytest.raises(ValueError, match="would build 100,000,000 weights between words, more than 67,108,864"):
        words(long)
