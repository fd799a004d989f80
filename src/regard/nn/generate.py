"""Generate: continue a text with a language model, token by token."""

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from regard.checks import is_tensor, positive, whole
from regard.nn.cache import KVCache

#: model(tokens, cache=cache, at=rows) -> logits (batch, 1, vocabulary) of the token after place `rows[b]` of row b
Model = Callable[..., Tensor]


def stream(
    model: Model,
    tokens: Tensor,
    count: int,
    *,
    lengths: Tensor | Sequence[int] | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Collection[int] = (),
    cache: KVCache | None = None,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[Tensor]:
    """Up to `count` next tokens (batch,) after `tokens` (batch, length), one at a time.

    `model(tokens, cache=cache, at=rows)` gives logits, as `LanguageModel` and `Transformer.decode` do. Without a
    `temperature` the likeliest token is taken. With one, a token is drawn: from the `top_k` likeliest, and from the
    fewest whose probabilities reach `top_p`. A row that has given a token of `stop` repeats it, and the stream ends
    when all rows have. Prompts of different `lengths` are padded on the right. The prompt is read in pieces of `chunk`
    tokens, all at once by default. A `cache` that holds earlier tokens is continued.
    """
    choose = _chooser(temperature, top_k, top_p, generator)
    whole("count", count, 0)
    if isinstance(stop, int | str):
        raise TypeError(f"stop must be a collection of tokens, got {stop!r}; write stop=[...]")
    if is_tensor("tokens", tokens).ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must be (batch, length) with at least one token, got shape {tuple(tokens.shape)}")
    cache = KVCache() if cache is None else cache
    with torch.no_grad():
        logits = _read(model, tokens, lengths, cache, chunk)
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    ends = torch.tensor(sorted(stop), dtype=tokens.dtype, device=tokens.device)
    last: Tensor | None = None
    for step in range(count):
        with torch.no_grad():
            if last is not None:
                logits = model(last.unsqueeze(1), cache=cache, at=torch.zeros_like(last))[:, 0]
            chosen = choose(logits.float())
            chosen = chosen if last is None else torch.where(ended, last, chosen)
            ended = ended | torch.isin(chosen, ends)
            last = chosen
        yield last
        if bool(ended.all()) or step == count - 1:
            return


def generate(model: Model, tokens: Tensor, count: int, **options: object) -> Tensor:
    """The next tokens (batch, up to `count`), as `stream` gives them one by one.

    >>> import torch, regard
    >>> model = regard.nn.LanguageModel(50, layers=1, d_model=16, heads=2, position=regard.nn.Rotary(8))
    >>> regard.nn.generate(model, torch.tensor([[1, 2, 3]]), 5).shape
    torch.Size([1, 5])
    """
    chosen = list(stream(model, tokens, count, **options))  # type: ignore[arg-type]
    return torch.stack(chosen, 1) if chosen else tokens[:, :0]


def _read(
    model: Model, tokens: Tensor, lengths: Tensor | Sequence[int] | None, cache: KVCache, chunk: int | None
) -> Tensor:
    """The logits after each row's prompt; the cache holds the prompts and no padding."""
    if lengths is None:
        ends = torch.full(tokens.shape[:1], tokens.shape[1], dtype=torch.int64, device="cpu")
    else:
        ends = torch.as_tensor(lengths, device="cpu")
    if ends.shape != tokens.shape[:1] or bool((ends < 1).any()) or bool((ends > tokens.shape[1]).any()):
        raise ValueError(
            f"lengths must be one per batch row, from 1 to the {tokens.shape[1]} tokens given, got {ends.tolist()}"
        )
    before, last = cache.length, ends.to(tokens.device) - 1
    step = tokens.shape[1] if chunk is None else whole("chunk", chunk, 1)
    logits: Tensor | None = None
    for number, piece in enumerate(tokens.split(step, 1)):
        here = (last - number * step).clamp(0, piece.shape[1] - 1)
        new = model(piece, cache=cache, at=here)[:, 0]
        logits = new if logits is None else torch.where((last // step == number).unsqueeze(-1), new, logits)
    if lengths is not None and bool((ends < tokens.shape[1]).any()):
        cache.truncate(before + ends.cpu())
    assert logits is not None
    return logits


def _chooser(
    temperature: float | None, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> Callable[[Tensor], Tensor]:
    if temperature is None:
        if top_k is not None or top_p is not None:
            raise ValueError("top_k and top_p choose what is drawn from; pass temperature=1.0 to draw")
        return lambda logits: logits.argmax(-1)
    positive("temperature", temperature)
    if top_k is not None:
        whole("top_k", top_k, 1)
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")

    def draw(logits: Tensor) -> Tensor:
        probabilities = likeliest(logits / temperature, top_k, top_p).softmax(-1)
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]

    return draw


def likeliest(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Logits with −inf for all but the `top_k` largest, and but the fewest whose probabilities reach `top_p`."""
    if top_k is not None and top_k < logits.shape[-1]:
        kept = logits.topk(top_k, -1).indices
        logits = torch.full_like(logits, -torch.inf).scatter(-1, kept, logits.gather(-1, kept))
    if top_p is not None and top_p < 1:
        ordered, order = logits.sort(stable=True, dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        logits = torch.full_like(logits, -torch.inf).scatter(
            -1, order, ordered.masked_fill(before >= top_p, -torch.inf)
        )
    return logits
