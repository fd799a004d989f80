"""Layers: modules that own parameters and call `attend`."""

from regard.nn.attention import MultiHeadAttention
from regard.nn.block import Block
from regard.nn.cache import KVCache
from regard.nn.embedding import Embedding
from regard.nn.feed_forward import FeedForward
from regard.nn.fused import fuse
from regard.nn.generate import generate, stream
from regard.nn.language_model import LanguageModel
from regard.nn.positions import T5, ALiBi, Distance, Learned, Sinusoidal
from regard.nn.rms_norm import RMSNorm
from regard.nn.rotary import Rotary
from regard.nn.scores import Additive, ConcatMLP, General, Relative, Sink
from regard.nn.stack import Decoder, Encoder
from regard.nn.transformer import Transformer

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
