"""Attention as models write it out: modules of the structure of known ones, which note their weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize, pad

BATCH, HEADS, LENGTH, SIZE = 2, 3, 7, 5
WIDTH = HEADS * SIZE
Attend = Callable[["Attention", Tensor, Tensor, Tensor], Tensor]


class Attention(nn.Module):
    """Queries, keys and values, (batch, length, width), go to a function, which notes its weights, (batch, head, query,
    key)."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend, self.noted = attend, list[Tensor]()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.before, self.after = nn.Linear(HEADS, HEADS), nn.Linear(HEADS, HEADS)
        self.convolution = nn.Conv2d(HEADS, HEADS, 1)
        self.latents = nn.Parameter(torch.randn(2, WIDTH))
        self.positions = nn.Parameter(torch.randn(HEADS, 2 * LENGTH - 1, SIZE))
        self.bias = nn.Parameter(torch.randn(HEADS, LENGTH, LENGTH))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attend(self, self.query(x), self.key(x), self.value(x))
        return out

    def note(self, weights: Tensor) -> Tensor:
        self.noted.append(weights.detach().clone())
        return weights


def model_of(attend: Attend) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.LayerNorm(WIDTH), Attention(attend), nn.Linear(WIDTH, 11), nn.Softmax(-1)).eval()


def split(x: Tensor) -> Tensor:
    """(batch, head, length, size)."""
    heads: Tensor = x.unflatten(-1, (HEADS, SIZE))
    return heads.transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def by_matmul(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    return joined(self.note((q @ k.mT / 2).softmax(-1)) @ v)


def by_einsum(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.unflatten(-1, (HEADS, SIZE)) for x in (q, k, v))
    weights = self.note(torch.einsum("bihd, bjhd -> bhij", q, k).softmax(-1))
    return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)


def by_einsum_with_dots(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    weights = self.note(torch.einsum("...id,...jd->...ij", q, k).softmax(-1))
    return joined(torch.einsum("...ij,...jd->...id", weights, v))


def keys_first(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(batch, key, query, head), softmax over axis 1."""
    q, k, v = (x.unflatten(-1, (HEADS, SIZE)) for x in (q, k, v))
    weights = torch.einsum("bihd,bjhd->bjih", q, k).softmax(1)
    self.note(weights.permute(0, 3, 2, 1))
    return torch.einsum("bjih,bjhd->bihd", weights, v).flatten(2)


def keys_above(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """k @ q, softmax over the last axis but one."""
    q, k, v = split(q), split(k), split(v)
    weights = (k @ q.mT).softmax(-2)
    self.note(weights.mT)
    return joined((v.mT @ weights).mT)


def folded(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Batch and heads in one axis, as in old code for bmm."""
    q, k, v = (split(x).reshape(BATCH * HEADS, LENGTH, SIZE) for x in (q, k, v))
    scores = torch.baddbmm(torch.empty(BATCH * HEADS, LENGTH, LENGTH), q, k.transpose(1, 2), beta=0, alpha=0.4)
    weights = scores.softmax(-1)
    self.note(weights.unflatten(0, (BATCH, HEADS)))
    return joined(torch.bmm(weights, v).unflatten(0, (BATCH, HEADS)))


def length_first(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in fairseq: (length, batch, width), and batch × head in the middle."""
    q, k, v = (
        x.transpose(0, 1).contiguous().view(LENGTH, BATCH * HEADS, SIZE).transpose(0, 1) for x in (q * 0.3, k, v)
    )
    weights = torch.bmm(q, k.transpose(1, 2)).softmax(-1)
    self.note(weights.view(BATCH, HEADS, LENGTH, LENGTH))
    out = dropout(weights, 0.2, self.training).bmm(v)
    return out.transpose(0, 1).reshape(LENGTH, BATCH, WIDTH).transpose(0, 1)


def heads_outside(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads stacked along the batch: (head × batch, length, size)."""
    q, k, v = (torch.cat(x.split(SIZE, 2)) for x in (q, k, v))
    weights = (q @ k.mT).softmax(-1)
    self.note(weights.unsqueeze(1))
    return torch.cat((weights @ v).split(BATCH), 2)


def without_heads(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.mT).softmax(-1)
    self.note(weights.unsqueeze(1))
    return weights @ v


def one_query_head_group(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads among the rows, over keys that they share."""
    q = q.unflatten(-1, (HEADS, SIZE)).reshape(BATCH, LENGTH * HEADS, SIZE)
    k, v = k[..., :SIZE], v[..., :SIZE]
    weights = (q @ k.mT).view(BATCH, LENGTH, HEADS, LENGTH).softmax(-1)
    self.note(weights.transpose(1, 2))
    return (weights.view(BATCH, LENGTH * HEADS, LENGTH) @ v).view(BATCH, LENGTH, WIDTH)


def repeated_keys(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k)[:, :1], split(v)[:, :1]
    k, v = (x[:, :, None].expand(BATCH, 1, HEADS, LENGTH, SIZE).reshape(BATCH, HEADS, LENGTH, SIZE) for x in (k, v))
    return joined(self.note((q @ k.mT).softmax(-1)) @ v)


def masked(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A cap, a bias, a mask, softmax in double precision, a cast, dropout."""
    q, k, v = split(q), split(k), split(v)
    scores = 5.0 * torch.tanh((q @ k.mT / 3 + self.bias) / 5.0)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    weights = self.note(scores.masked_fill(hidden, -torch.inf).double().softmax(-1))
    return joined(dropout(weights.to(q.dtype), 0.2, self.training) @ v.contiguous())


def in_place(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    with torch.no_grad():
        scores = torch.matmul(q, k.mT)
        scores.mul_(0.4).add_(self.bias).masked_fill_(torch.ones(LENGTH, LENGTH).triu(1) > 0, torch.finfo(q.dtype).min)
        weights = self.note(torch.softmax(scores, -1))
        out = torch.matmul(dropout(weights, 0.2, True, inplace=True), v)
        weights.zero_()
    return joined(out)


def hidden_after(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in ESPnet: hidden pairs get 0 after the softmax."""
    q, k, v = split(q), split(k), split(v)
    hidden = torch.zeros(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool)
    hidden[1, :, :, 4:] = True
    hidden[1, :, 5] = True
    weights = (q @ k.mT).masked_fill(hidden, torch.finfo(q.dtype).min).softmax(-1)
    return joined(dropout(self.note(weights.masked_fill(hidden, 0.0)), 0.1, self.training) @ v)


def written_out(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    scores = q @ k.mT
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return joined(self.note(weights / weights.sum(-1, keepdim=True)) @ v)


def by_logarithm(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    return joined(self.note((q @ k.mT).log_softmax(-1).exp()) @ v)


def added_up(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    weights = self.note((q @ k.mT).softmax(-1))
    return joined((weights.unsqueeze(-1) * v.unsqueeze(2)).sum(-2))


def checked(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Looks at its own numbers."""
    q, k, v = split(q), split(k), split(v)
    scores = q @ k.mT
    assert scores.abs().max().item() < 100
    weights = self.note(scores.softmax(-1))
    assert not weights.isnan().any()
    assert weights.sum(-1).sub(1).abs().max() < 1e-3
    assert weights.amax().item() <= 1.0
    assert weights.tolist()
    return joined(weights @ v)


def by_distance(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    return joined(self.note((-torch.cdist(q, k)).softmax(-1)) @ v)


def windows(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in Swin: windows are in the batch, and their masks are added in a view."""
    size = LENGTH - 3
    q, k, v = (split(torch.stack([x[:, :size], x[:, -size:]], 1).flatten(0, 1)) for x in (q, k, v))
    mask = torch.zeros(2, size, size)
    mask[1, :2, 2:] = -100.0
    scores = (q * 0.4) @ k.transpose(-2, -1) + self.bias[:, :size, :size].unsqueeze(0)
    scores = scores.view(BATCH, 2, HEADS, size, size) + mask.unsqueeze(1).unsqueeze(0)
    weights = self.note(scores.view(-1, HEADS, size, size).softmax(-1))
    out = (weights @ v).transpose(1, 2).reshape(BATCH, 2 * size, WIDTH)
    return out[:, :LENGTH]


def shifted(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in Transformer-XL: scores of positions are shifted and added."""
    q, k, v = split(q), split(k), split(v)
    places = q @ self.positions.mT
    places = pad(places, (1, 0)).view(BATCH, HEADS, 2 * LENGTH, LENGTH)[:, :, 1:].view_as(places)[..., :LENGTH]
    return joined(self.note(((q @ k.mT + places) * 0.4).softmax(-1)) @ v)


def relative_values(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As by Shaw: weights are multiplied twice."""
    q, k, v = split(q), split(k), split(v)
    weights = self.note((q @ k.mT).softmax(-1))
    relative = v.unsqueeze(2) * torch.linspace(-1, 1, LENGTH).view(LENGTH, 1, 1)
    return joined(weights @ v + torch.einsum("bhij,bhijd->bhid", weights, relative))


def class_token(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q[:, :1]), split(k), split(v)
    return joined(self.note((q @ k.mT).softmax(-1)) @ v)


def learned_queries(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(self.query(self.latents).expand(BATCH, -1, -1)), split(k), split(v)
    return joined(self.note((q @ k.mT).softmax(-1)) @ v)


PLAIN: list[Attend] = [
    *(by_matmul, by_einsum, by_einsum_with_dots, keys_first, keys_above, folded, length_first, heads_outside),
    *(without_heads, one_query_head_group, repeated_keys, masked, in_place, hidden_after, written_out, by_logarithm),
    *(added_up, checked, by_distance, windows, shifted, relative_values, class_token, learned_queries),
]


def talking(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in CaiT."""
    q, k, v = split(q), split(k), split(v)
    weights = self.note(self.before((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1))
    return joined(dropout(self.after(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), 0.1, self.training) @ v)


def talking_by_convolution(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in DeepViT."""
    q, k, v = split(q), split(k), split(v)
    return joined(self.convolution(self.note((q @ k.mT).softmax(-1))) @ v)


def differential(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    one = self.note((q @ k.mT).softmax(-1))
    other = self.note((q.flip(-1) @ k.mT).softmax(-1))
    return joined((one - 0.3 * other) @ v)


def gated_weights(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q), split(k), split(v)
    return joined((self.note((q @ k.mT).softmax(-1)) * q.mean(-1, keepdim=True)) @ v)


def channels(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in XCiT."""
    q, k, v = split(q).mT, split(k).mT, split(v).mT
    weights = self.note((normalize(q, dim=-1) @ normalize(k, dim=-1).mT * self.bias[:, :1, :1]).softmax(-1))
    return joined((weights @ v).mT)
