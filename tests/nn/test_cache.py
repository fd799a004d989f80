"""KVCache: in whatever chunks tokens come, each row gives what one pass over the whole sequence gives."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import biases, masks, normalizers
from regard.nn import (
    T5,
    Additive,
    ALiBi,
    Decoder,
    KVCache,
    LanguageModel,
    Learned,
    MultiHeadAttention,
    Relative,
    Rotary,
    Sink,
    Sinusoidal,
)

LAYERS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "rotary": lambda: {"position": Rotary(6)},
    "grouped": lambda: {"kv_heads": 2, "position": Rotary(6, pairing="interleaved")},
    "partly rotary": lambda: {"position": Rotary(4)},
    "alibi": lambda: {"position": ALiBi(4)},
    "t5": lambda: {"position": T5(4, buckets=8, bidirectional=False, max_distance=20)},
    "relative": lambda: {"position": Relative(6, 5)},
    "additive": lambda: {"score": Additive(6, 5)},
    "sink": lambda: {"normalizer": Sink(4)},
    "window": lambda: {"mask": masks.Window(5, 0), "bias": biases.ALiBi(4)},
}


def made(name: str, **more: Any) -> MultiHeadAttention:
    torch.manual_seed(2)
    layer = MultiHeadAttention(24, 4, **({"mask": "causal"} | LAYERS[name]() | more))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return layer.double().eval()


def in_chunks(x: Tensor, sizes: list[int], axis: int = 1) -> list[Tensor]:
    return [piece for piece in x.split([*sizes, x.shape[axis] - sum(sizes)], axis) if piece.shape[axis]]


def chunks(total: int) -> st.SearchStrategy[list[int]]:
    """Sizes that add up to at most `total`."""
    return st.lists(st.integers(1, 7), max_size=total).map(
        lambda sizes: [s for i, s in enumerate(sizes) if sum(sizes[: i + 1]) <= total]
    )


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=10)
@given(sizes=chunks(23), preallocated=st.booleans())
def test_chunks_are_one_pass(name: str, sizes: list[int], preallocated: bool) -> None:
    layer, x = made(name), torch.randn(2, 23, 24, dtype=torch.float64)
    cache = KVCache(capacity=23) if preallocated else KVCache()
    with torch.no_grad():
        found = torch.cat([layer(piece, cache=cache) for piece in in_chunks(x, sizes)], 1)
    torch.testing.assert_close(found, layer(x), rtol=1e-11, atol=1e-12)
    assert cache.length == 23


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "window"])
@settings(max_examples=10)
@given(sizes=chunks(23), window=st.integers(1, 9), sinks=st.integers(0, 4), learns=st.booleans())
def test_a_sliding_cache_is_one_pass_under_its_mask(
    name: str, sizes: list[int], window: int, sinks: int, learns: bool
) -> None:
    layer, x = made(name), torch.randn(2, 23, 24, dtype=torch.float64)
    cache = KVCache(window=window, sinks=sinks)
    with torch.set_grad_enabled(learns):
        found = torch.cat([layer(piece, cache=cache) for piece in in_chunks(x, sizes)], 1)
    mask = masks.Window(window - 1, 0) | masks.Prefix(sinks)
    torch.testing.assert_close(found, layer(x, mask=mask), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=10)
@given(lengths=st.lists(st.integers(1, 8), min_size=3, max_size=3), sizes=chunks(9), learns=st.booleans())
def test_rows_of_different_length_go_on_alone(name: str, lengths: list[int], sizes: list[int], learns: bool) -> None:
    layer = made(name)
    prompt, more = torch.randn(3, 8, 24, dtype=torch.float64), torch.randn(3, 9, 24, dtype=torch.float64)
    cache = KVCache()
    with torch.set_grad_enabled(learns):
        layer(prompt, cache=cache)
        cache.truncate(torch.tensor(lengths))
        found = torch.cat([layer(piece, cache=cache) for piece in in_chunks(more, sizes)], 1)
    for row, length in enumerate(lengths):
        alone = torch.cat([prompt[row : row + 1, :length], more[row : row + 1]], 1)
        torch.testing.assert_close(found[row], layer(alone)[0, length:], rtol=1e-11, atol=1e-12)


def test_padding_that_is_not_finite_stays_unseen() -> None:
    layer, cache = made("rotary"), KVCache()
    prompt, more = torch.randn(2, 5, 24, dtype=torch.float64), torch.randn(2, 3, 24, dtype=torch.float64)
    prompt[1, 3:] = torch.nan
    with torch.no_grad():
        layer(prompt, cache=cache)
        cache.truncate(torch.tensor([5, 3]))
        found = layer(more, cache=cache)
    right = layer(torch.cat([prompt[1:, :3], more[1:]], 1))[:, 3:]
    torch.testing.assert_close(found[1:], right, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"capacity": 9}, {"window": 3, "sinks": 1}], ids=str)
def test_beams_go_on_from_other_rows(options: dict[str, int]) -> None:
    layer, x = made("rotary"), torch.randn(3, 6, 24, dtype=torch.float64)
    rows = torch.tensor([2, 2, 0])
    one, other = KVCache(**options), KVCache(**options)
    with torch.no_grad():
        layer(x, cache=one)
        one.reorder(rows)
        layer(x[rows], cache=other)
        new = torch.randn(3, 1, 24, dtype=torch.float64)
        torch.testing.assert_close(layer(new, cache=one), layer(new, cache=other))


@pytest.mark.parametrize("options", [{}, {"capacity": 9}, {"window": 3, "sinks": 1}], ids=str)
def test_a_copy_goes_its_own_way(options: dict[str, int]) -> None:
    layer, x = made("rotary"), torch.randn(1, 6, 24, dtype=torch.float64)
    cache = KVCache(**options)
    with torch.no_grad():
        layer(x[:, :4], cache=cache)
        twin = copy.deepcopy(cache)
        first = layer(x[:, 4:5], cache=twin)
        layer(x[:, 5:6], cache=twin)
        assert torch.equal(layer(x[:, 4:5], cache=cache), first)
    assert (cache.length, twin.length) == (5, 6)


def test_truncate_takes_back_what_was_guessed() -> None:
    layer, x = made("rotary"), torch.randn(1, 6, 24, dtype=torch.float64)
    cache = KVCache()
    with torch.no_grad():
        layer(x[:, :3], cache=cache)
        layer(torch.randn(1, 4, 24, dtype=torch.float64), cache=cache)
        cache.truncate(3)
        found = layer(x[:, 3:], cache=cache)
    torch.testing.assert_close(found, layer(x)[:, 3:], rtol=1e-11, atol=1e-12)


def test_gradients_flow_through_a_cache() -> None:
    layer, x = made("rotary"), torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    cache = KVCache()
    found = torch.cat([layer(piece, cache=cache) for piece in x.split(3, 1)], 1)
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in (found, layer(x))]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-11)


def test_appending_costs_no_copy_of_what_is_there() -> None:
    layer, x = made("plain"), torch.randn(1, 1, 24, dtype=torch.float64)
    cache = KVCache()
    places = set()
    with torch.no_grad():
        for _ in range(64):
            layer(x, cache=cache)
            key = cache.layer(layer).key
            assert key is not None
            places.add((key.data_ptr(), key.shape[-2]))
    assert len(places) <= 7


def test_a_window_takes_constant_memory() -> None:
    layer, x = made("rotary"), torch.randn(1, 1, 24, dtype=torch.float64)
    cache, sizes = KVCache(window=8, sinks=2), []
    with torch.no_grad():
        for _ in range(100):
            layer(x, cache=cache)
            sizes.append(cache.nbytes)
    assert sizes[-1] == sizes[10]
    assert cache.length == 100


def test_cross_attention_projects_once() -> None:
    decoder = Decoder(2, 24, 4, position=Rotary(6)).double().eval()
    x, memory = torch.randn(2, 5, 24, dtype=torch.float64), torch.randn(2, 9, 24, dtype=torch.float64)
    calls = []
    for block in decoder.blocks:
        block.cross.k_proj.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr]
    cache = KVCache()
    with torch.no_grad():
        found = torch.cat([decoder(x[:, i : i + 1], memory, cache=cache) for i in range(5)], 1)
    assert len(calls) == 2
    torch.testing.assert_close(found, decoder(x, memory), rtol=1e-11, atol=1e-12)
    with torch.no_grad():
        decoder(x[:, :1], memory.clone(), cache=KVCache())
        decoder(x[:, :1], memory.clone(), cache=cache)
    assert len(calls) == 8  # another memory is projected again


@pytest.mark.parametrize("position", [lambda: Learned(40, 16), lambda: Sinusoidal(16), lambda: Rotary(4)])
def test_a_model_knows_where_its_cache_stands(position: Callable[[], torch.nn.Module]) -> None:
    model = LanguageModel(50, layers=2, d_model=16, heads=4, position=position()).double().eval()
    tokens = torch.randint(50, (2, 12))
    cache = KVCache()
    with torch.no_grad():
        found = torch.cat([model(piece, cache=cache) for piece in tokens.split(5, 1)], 1)
        torch.testing.assert_close(found, model(tokens), rtol=1e-11, atol=1e-12)
        cache.truncate(torch.tensor([4, 9]))
        one = model(tokens[:, :3], cache=cache)
        alone = model(torch.cat([tokens[1:, :9], tokens[1:, :3]], 1))
        torch.testing.assert_close(one[1:], alone[:, 9:], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KVCache(capacity=3, window=2), "capacity or window, not both"),
        (lambda: KVCache(sinks=2), "kept beside a window"),
        (lambda: KVCache(capacity=0), "capacity must be at least 1"),
        (lambda: KVCache().truncate(-1), "at least 0"),
    ],
)
def test_bad_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_misuse_is_named() -> None:
    layer, x = made("plain"), torch.randn(2, 4, 24, dtype=torch.float64)
    full = KVCache(capacity=5)
    layer(x, cache=full)
    with pytest.raises(ValueError, match=r"room for 5 tokens, 8 came; make it with KVCache\(capacity=8\)"):
        layer(x, cache=full)
    with pytest.raises(ValueError, match="belongs to one batch of sequences"):
        layer(x[:1], cache=full)
    sliding = KVCache(window=3)
    layer(x, cache=sliding)
    with pytest.raises(ValueError, match="cannot go back from 4 tokens to 2"):
        sliding.truncate(2)
    with pytest.raises(TypeError, match="integers"):
        full.truncate(torch.tensor([1.0, 2.0]))
    hard = made("plain", normalizer=normalizers.Hard())
    apart = KVCache(window=2, sinks=1)
    hard(x, cache=apart)
    with pytest.raises(ValueError, match="merged by their lse"):
        hard(x, cache=apart)


def test_it_says_what_it_holds() -> None:
    layer, x = made("plain"), torch.randn(2, 4, 24, dtype=torch.float64)
    cache = KVCache()
    layer(x, cache=cache)
    assert repr(cache) == "KVCache(): 4 tokens, 1 layer, 0.0 MiB"
    assert repr(KVCache(window=3, sinks=1)) == "KVCache(window=3, sinks=1): 0 tokens, 0 layers, 0.0 MiB"
    cache.truncate(torch.tensor([1, 4]))
    assert "[1, 4] tokens" in repr(cache)


@pytest.mark.parametrize("options", [{}, {"capacity": 20}, {"window": 3, "sinks": 1}], ids=str)
@pytest.mark.parametrize("learns", [False, True])
def test_a_call_that_fails_leaves_the_cache_as_it_was(options: dict[str, int], learns: bool) -> None:
    model = LanguageModel(50, layers=3, d_model=16, heads=4, position=Rotary(4)).double().eval()
    tokens, cache, twin = torch.randint(50, (2, 12)), KVCache(**options), KVCache(**options)
    with torch.set_grad_enabled(learns):
        for each in (cache, twin):
            model(tokens[:, :6], cache=each)
        last = model.blocks.blocks[2].feed_forward
        hook = last.register_forward_hook(lambda *_: 1 / 0)  # type: ignore[union-attr]
        with pytest.raises(ZeroDivisionError):
            model(tokens[:, 6:10], cache=cache)
        hook.remove()
        assert cache.length == 6
        right = model(tokens[:, 6:], cache=twin)
        torch.testing.assert_close(model(tokens[:, 6:], cache=cache), right)


def test_a_first_call_that_fails_leaves_an_empty_cache() -> None:
    model = LanguageModel(50, layers=2, d_model=16, heads=4, position=Rotary(4)).eval()
    cache = KVCache()
    with pytest.raises(ValueError, match="broadcast"):
        model(torch.randint(50, (2, 5)), mask=torch.ones(3, 3, dtype=torch.bool), cache=cache)
    assert cache.length == 0
    assert model(torch.randint(50, (1, 4)), cache=cache).shape == (1, 4, 50)


def test_lists_of_lengths_and_rows_do() -> None:
    layer, x = made("rotary"), torch.randn(2, 4, 24, dtype=torch.float64)
    cache = KVCache()
    layer(x, cache=cache)
    cache.truncate([4, 2])
    assert isinstance(cache.length, Tensor)
    assert cache.length.tolist() == [4, 2]
    cache.reorder([1, 0])
    assert cache.length.tolist() == [2, 4]
    with pytest.raises(ValueError, match=r"rows from 0 to 1, got \[0, 2\]"):
        cache.reorder([0, 2])
    with pytest.raises(ValueError, match="one length for each of the 2 rows, got 3"):
        cache.truncate([1, 2, 3])
    with pytest.raises(TypeError, match="must be integers"):
        cache.truncate(1.5)  # type: ignore[arg-type]


def test_checkpointing_and_a_cache_exclude_each_other() -> None:
    model = LanguageModel(50, layers=1, d_model=16, heads=4).train()
    model.blocks.checkpointing = True
    with pytest.raises(ValueError, match="runs each block twice"):
        model(torch.randint(50, (1, 4)), cache=KVCache())
