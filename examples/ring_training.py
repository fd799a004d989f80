"""A language model learns on a text that several processes share: each holds a part of every sequence.

A word of random letters comes again and again: after the first time every letter can be known, by looking back as far
as the word is long. Every process holds a slice of each sequence of the batch, the keys of all go round the ring, and
the gradients of the weights are summed. The loss is that of one process, to the last digits.

    python examples/ring_training.py                                  one process
    torchrun --nproc-per-node 2 examples/ring_training.py             two, the same loss
    torchrun --nproc-per-node 4 examples/ring_training.py --length 2048 --layout zigzag
"""

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

import regard
from regard import Ring

LETTERS = 26


def batch(step: int, rows: int, length: int, word: int) -> Tensor:
    """A word for each row, again and again; every process draws the whole, and keeps its part."""
    words = torch.randint(LETTERS, (rows, word), generator=torch.Generator().manual_seed(step))
    return words.repeat(1, -(-length // word))[:, :length]


def summed(parameters: list[Tensor]) -> None:
    """Every process has its share of the gradients: their sum is that of the whole."""
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)


def train(options: argparse.Namespace) -> None:
    """Train, and print the loss of the whole batch as the first process sees it."""
    ring = Ring(layout=options.layout)
    torch.manual_seed(0)  # the same weights on every process
    model = regard.nn.LanguageModel(
        LETTERS, layers=2, d_model=64, heads=4, position=regard.nn.Rotary(16), engine=ring
    ).to(getattr(torch, options.dtype))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    count = options.rows * (options.length - 1)
    for step in range(options.steps + 1):
        tokens = batch(step, options.rows, options.length, options.word)
        answers = torch.cat([tokens[:, 1:], tokens.new_full((options.rows, 1), -100)], 1)  # the last has no next
        logits = model(ring.shard(tokens, -1))
        own = ring.shard(answers, -1)
        loss = cross_entropy(logits.flatten(0, 1), own.flatten(), reduction="sum") / count
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach().double()
        dist.all_reduce(total)
        summed(parameters)
        optimizer.step()
        if ring.rank == 0 and (step % options.every == 0 or step == options.steps):
            print(f"step {step:4d}  loss {float(total):.10f}", flush=True)
    if ring.rank == 0:
        assert ring.last is not None
        print(f"{ring!r}: {ring.last.bytes_sent:,} bytes sent by this process for one layer of one step")


def main() -> None:
    """Read the options, join the other processes, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=128, help="letters of a sequence")
    parser.add_argument("--word", type=int, default=16, help="letters of the word that comes again")
    parser.add_argument("--rows", type=int, default=8, help="sequences of a batch")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10, help="steps between two lines")
    parser.add_argument("--layout", choices=("contiguous", "zigzag"), default="contiguous")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    options = parser.parse_args()
    if "RANK" in os.environ:  # torchrun
        dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        train(options)
        # gloo frees the tensors of an all_reduce on a thread of its own, which must not meet the end of the interpreter
        dist.barrier()
        time.sleep(0.1)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
