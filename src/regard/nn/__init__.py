"""Layers: modules that own parameters and call `attend`."""

from regard.nn.attention import MultiHeadAttention
from regard.nn.block import Block, RMSNorm
from regard.nn.cache import KVCache
from regard.nn.feed_forward import FeedForward
from regard.nn.fused import fuse
from regard.nn.generate import generate, stream
from regard.nn.models import Embedding, LanguageModel, Transformer
from regard.nn.positions import T5, ALiBi, Distance, Learned, Rotary, Sinusoidal
from regard.nn.scores import Additive, ConcatMLP, General, Relative, Sink
from regard.nn.stack import Decoder, Encoder

__all__ = [
    "T5",
    "ALiBi",
    "Additive",
    "Block",
    "ConcatMLP",
    "Decoder",
    "Distance",
    "Embedding",
    "Encoder",
    "FeedForward",
    "General",
    "KVCache",
    "LanguageModel",
    "Learned",
    "MultiHeadAttention",
    "RMSNorm",
    "Relative",
    "Rotary",
    "Sink",
    "Sinusoidal",
    "Transformer",
    "fuse",
    "generate",
    "stream",
]
