"""Pieces of answers out of any split of an engine's bytes.

Parsing is llhttp's (`httptools`), as of requests (`wire/reader`).
"""

import httptools

from gateway.wire import http1
from gateway.wire.collector import HEAD_LIMIT, MAX_HEAD_BYTES, Collector, HeadTooLarge
from gateway.wire.heads import Form, Heads

_ERRORS = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class _Surplus(Exception):
    """An answer that nobody asked for, right behind the one that was."""


class AnswerReader(Collector):
    """Feeds on an engine's bytes, for one answer after another. After each `feed`: `status` is set once
    the head is complete, `take` gives the body bytes that came, `complete` says that it was the last. Bytes
    after that answer are dropped, and `keep_alive` is false then. With the status come `headers`, `head`,
    which is what they tell, and `length`, the content-length as it was written.

    A head of a form that llhttp has taken before (`heads.form`) is not given to it again, nor is the body
    whose length it tells: llhttp then stands between two answers, where it was.
    """

    def __init__(self, heads: Heads | None = None) -> None:
        super().__init__()
        self.status = 0
        self.complete = False
        self.keep_alive = False
        self.length: bytes | None = None
        self._heads = heads or Heads()
        self.head = self._heads.told([])
        self._is_new = True
        self._left = 0
        self._pieces: list[bytes] = []
        # Straight into the list: a method of ours would be one call more for each event.
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._feed_parser = self._parser.feed_data

    def feed(self, data: bytes) -> None:
        """Raises `ValueError` for what is no HTTP/1.1 answer."""
        is_new = self._is_new
        if is_new:
            self._is_new = not data
            form = self._heads.form
            if form is not None and (digits := form.shape.digits(data)) is not None:
                self._begin(form, digits, data)
                return
        elif self._left:
            self._count(data)
            return
        pieces = self._pieces
        known = len(pieces)
        try:
            # As `_parse`, which would be one call more for each event.
            self._stalled_bytes += len(data)
            self._feed_parser(data)
            if len(pieces) > known:
                self._stalled_bytes = 0
            elif self._stalled_bytes > MAX_HEAD_BYTES:
                raise HeadTooLarge(HEAD_LIMIT)
        except HeadTooLarge as error:
            raise ValueError(str(error)) from None
        except _ERRORS as error:
            self._fail(error)
        else:
            if is_new and self.length is not None and (self.keep_alive or self._stays()):
                self._heads.learn(data, self.status, self.headers, sum(map(len, pieces[known:])))

    def more(self, data: bytes) -> bytes | None:
        """As `feed`, for an answer without a length that has begun. Returns what came if it is one piece of
        the body and nothing else: that is not to be taken any more."""
        try:
            self._feed_parser(data)
        except _ERRORS as error:
            self._fail(error)
        pieces = self._pieces
        if len(pieces) == 1 and not self.complete:
            self._stalled_bytes = 0
            return pieces.pop()
        if not pieces:
            # Sizes of chunks, or trailers.
            self._stalled_bytes += len(data)
            if self._stalled_bytes > MAX_HEAD_BYTES:
                raise ValueError(HEAD_LIMIT)
        return None

    def _fail(self, error: Exception) -> None:
        """Raises `ValueError` but for what follows a whole answer: that ends the connection only."""
        if isinstance(error, httptools.HttpParserUpgrade):
            raise ValueError("the engine switched protocols") from None
        if not self.complete:
            cause = error.__context__ or f"the engine's answer is not valid HTTP/1.1: {error}"
            raise ValueError(str(cause)) from None
        self.keep_alive = False

    def take(self) -> bytes:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return data

    def eof(self) -> bool:
        """The engine closed: whether that is how this answer says that it is complete."""
        ends_so = (
            self.status > 0
            and self.length is None
            and not http1.is_listed(self.headers, b"transfer-encoding", b"chunked")
        )
        self.complete = self.complete or ends_so
        return self.complete

    def reset(self) -> None:
        """Ready for the next answer on the same connection."""
        self._is_new = self.complete and self.keep_alive
        self.status = 0
        self.length = None
        self.complete = self.keep_alive = False

    def _stays(self) -> bool:
        """Whether the connection is to stay after an answer that has begun; afterwards llhttp cannot tell."""
        return not self.complete and bool(self._parser.should_keep_alive())

    def _begin(self, form: Form, digits: bytes, data: bytes) -> None:
        """`data` begins an answer of `form`, which is taken now."""
        self._heads.misses = 0
        self._stalled_bytes = 0
        self.headers = headers = form.headers.copy()
        headers[form.at] = (b"content-length", digits)
        self.head = form.head
        self.status = form.status
        self.length = digits
        self._left = int(digits)
        self._count(data[form.shape.bytes + len(digits) :])

    def _count(self, data: bytes) -> None:
        """A piece of a body that ends when its length has come."""
        left = self._left - len(data)
        if left > 0:
            self._left = left
            if data:
                self._pieces.append(data)
            return
        body = data[: self._left]
        self._left = 0
        if body:
            self._pieces.append(body)
        self.complete = self.keep_alive = True
        if left < 0:
            self.feed(data[left:])

    def on_message_begin(self) -> None:
        if self.complete:
            raise _Surplus
        self.headers = []
        self.in_head = True
        self._head_bytes = self._headers = 0

    def on_headers_complete(self) -> None:
        self.in_head = False
        self._stalled_bytes = 0
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self.head = self._heads.told(self.headers)
            self.length = http1.header(self.headers, b"content-length")

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
