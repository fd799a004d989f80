"""Connection: HTTP on a socket, as uvicorn speaks it, with an end to all waiting."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.map import limits
from regard.map.guard import RAW_HEADERS


class Connection(H11Protocol):
    """HTTP as uvicorn speaks it, with an end to all waiting; every answer has our headers."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first word."""
        super().connection_made(transport)
        self.access_log = False  # the first address holds the token
        if len(self.connections) > limits.CONNECTIONS:
            transport.close()
        self._wait(limits.IDLE)

    def data_received(self, data: bytes) -> None:
        """A request must come whole in time, and be answered in time."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]
        if answering:
            self._wait(limits.LONGEST)
        elif self._patience is None:
            self._wait(limits.IDLE)

    def on_response_complete(self) -> None:
        """From here on uvicorn waits for the next request."""
        self._rest()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close; whoever has not read the answer by now never will."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._rest()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._rest()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None

    def send_400_response(self, msg: str) -> None:
        """For what is not HTTP at all."""
        headers = [*RAW_HEADERS, (b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()
