"""Limits: how much one question, one answer and all of them together may take."""

URL = 8 << 10  # bytes
HEADERS = 16 << 10
BODY = 1 << 20
DEPTH = 32  # of JSON
AT_ONCE, WAITING = 4, 16  # computations that run and that wait; more are told to come again
SECONDS = 10.0  # for one question
IDLE = 30  # seconds without a word on an open connection
LONGEST = 60  # seconds from a request's first word to its answer
ANSWER = 8 << 20  # bytes of an answer in JSON; tiles are limited by their number
CONNECTIONS = 256
ENTRY = 60.0  # seconds in which the address that a browser is started with opens the page
