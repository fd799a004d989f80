"""generate: the same tokens with a cache, in chunks, padded or alone; and draws that follow the distribution."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.nn import KVCache, LanguageModel, Rotary, Transformer, generate, stream
from regard.nn.generate import likeliest


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(0)
    made = LanguageModel(40, layers=2, d_model=32, heads=4, kv_heads=2, position=Rotary(8)).double().eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def slowly(model: LanguageModel, tokens: Tensor, count: int) -> Tensor:
    """Greedy, the whole text again for every token."""
    with torch.no_grad():
        for _ in range(count):
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    return tokens[:, -count:]


@pytest.mark.parametrize("chunk", [None, 1, 4, 100])
def test_greedy_is_the_text_read_again(model: LanguageModel, chunk: int | None) -> None:
    tokens = torch.randint(40, (3, 9))
    assert torch.equal(generate(model, tokens, 12, chunk=chunk), slowly(model, tokens, 12))
    assert torch.equal(model.generate(tokens, 12, chunk=chunk), slowly(model, tokens, 12))


@pytest.mark.parametrize("chunk", [None, 3])
def test_padded_prompts_are_each_alone(model: LanguageModel, chunk: int | None) -> None:
    tokens, lengths = torch.randint(40, (3, 9)), torch.tensor([9, 1, 6])
    found = generate(model, tokens, 7, lengths=lengths, chunk=chunk)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(found[row : row + 1], slowly(model, tokens[row : row + 1, :length], 7))


def test_a_cache_is_gone_on_with(model: LanguageModel) -> None:
    tokens, cache = torch.randint(40, (2, 9)), KVCache()
    first = generate(model, tokens, 4, cache=cache)
    # the last token was given, not read: it comes first now
    second = generate(model, first[:, -1:], 5, cache=cache)
    assert torch.equal(torch.cat([first, second], 1), slowly(model, tokens, 9))


def test_a_stream_comes_token_by_token(model: LanguageModel) -> None:
    tokens = torch.randint(40, (2, 5))
    given = stream(model, tokens, 6)
    first = next(given)
    assert first.shape == (2,)
    assert torch.equal(torch.stack([first, *given], 1), generate(model, tokens, 6))
    assert torch.is_grad_enabled()


def test_rows_stop(model: LanguageModel) -> None:
    tokens = torch.randint(40, (3, 5))
    free = generate(model, tokens, 10)
    ends = {int(free[0, 2]), int(free[1, 4])}
    found = generate(model, tokens, 10, stop=ends)
    for row in range(3):
        hits = [i for i, token in enumerate(free[row].tolist()) if token in ends]
        upto = hits[0] + 1 if hits else 10
        assert torch.equal(found[row, :upto], free[row, :upto])
        assert (found[row, upto:] == found[row, upto - 1]).all()


def test_an_encoder_decoder_generates() -> None:
    torch.manual_seed(1)
    model = Transformer(30, layers=1, d_model=16, heads=2).double().eval()
    memory = model.encode(torch.randint(30, (2, 6)))
    found = generate(partial(model.decode, memory=memory), torch.zeros(2, 1, dtype=torch.long), 5)
    tokens = torch.zeros(2, 1, dtype=torch.long)
    for _ in range(5):
        tokens = torch.cat([tokens, model.decode(tokens, memory)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, tokens[:, 1:])


def test_a_seed_repeats_a_draw(model: LanguageModel) -> None:
    tokens = torch.randint(40, (2, 5))
    draws = [
        generate(model, tokens, 20, temperature=1.5, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(generate(model, tokens, 5, temperature=1.0, top_k=1), generate(model, tokens, 5))


def test_top_k_and_top_p() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.05, 0.25, 0.2]]).log()
    assert (likeliest(logits, 2, None) > -torch.inf).tolist() == [[False, True, False, True, False]]
    assert (likeliest(logits, None, 0.6) > -torch.inf).tolist() == [[False, True, False, True, False]]
    assert (likeliest(logits, None, 0.66) > -torch.inf).tolist() == [[False, True, False, True, True]]
    assert (likeliest(logits, None, 0.01) > -torch.inf).sum() == 1
    assert torch.equal(likeliest(logits, 5, 1.0), logits)


def test_draws_follow_the_distribution() -> None:
    share = torch.tensor([0.5, 0.3, 0.15, 0.05])

    def model(tokens: Tensor, cache: object, at: Tensor) -> Tensor:
        return share.log().expand(len(tokens), 1, 4)

    found = generate(model, torch.zeros(4000, 1, dtype=torch.long), 1, temperature=1.0)
    counts = torch.bincount(found.flatten(), minlength=4) / 4000
    assert (counts - share).abs().max() < 0.04
    sharp = generate(model, torch.zeros(4000, 1, dtype=torch.long), 1, temperature=0.5)
    right = share.square() / share.square().sum()
    assert (torch.bincount(sharp.flatten(), minlength=4) / 4000 - right).abs().max() < 0.04


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 3}, "pass temperature"),
        ({"temperature": 0.0}, "temperature must be a finite number above 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p must be above 0"),
        ({"temperature": 1.0, "top_k": 0}, "top_k must be at least 1"),
        ({"lengths": torch.tensor([3, 9])}, "from 1 to the 5 tokens given"),
        ({"chunk": 0}, "chunk must be at least 1"),
    ],
    ids=str,
)
def test_bad_settings(model: LanguageModel, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(model, torch.randint(40, (2, 5)), 3, **options)


def test_nothing_to_go_on_from(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        generate(model, torch.zeros(1, 0, dtype=torch.long), 3)
    assert generate(model, torch.zeros(2, 3, dtype=torch.long), 0).shape == (2, 0)


def test_lists_do_and_misuse_is_named(model: LanguageModel) -> None:
    tokens = torch.randint(40, (2, 5))
    found = generate(model, tokens, 3, lengths=[5, 2])
    assert torch.equal(found, generate(model, tokens, 3, lengths=torch.tensor([5, 2])))
    sliding = generate(model, tokens, 3, lengths=[5, 5], cache=KVCache(window=50))
    assert torch.equal(sliding, generate(model, tokens, 3))
    with pytest.raises(TypeError, match=r"write stop=\[...\]"):
        generate(model, tokens, 3, stop=5)
    with pytest.raises(TypeError, match=r"tokens must be a torch.Tensor"):
        generate(model, [[1, 2]], 3)  # type: ignore[arg-type]
