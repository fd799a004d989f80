"""The ring engine: sequences that several processes of torch.distributed share."""

from regard.engine.ring.link import RingPeerLost
from regard.engine.ring.ring import Ring

__all__ = ["Ring", "RingPeerLost"]
