"""The KV cache as pages: which are free, who holds which, what is promised.

Introduced in the chapter "Pages". A page holds the keys and values of 16 tokens; vLLM
calls it a block. The pool keeps page numbers and counts only: `tinyserve.kvstore` keeps
the same tables with real keys and values behind them.
"""

from collections import deque

from tinyserve.checks import whole

PAGE_SIZE = 16  # tokens; also vLLM's default


def pages_for(tokens, page_size=PAGE_SIZE):
    """Pages that hold `tokens` tokens, `page_size` to a page; the last may be partly empty.

    Raises ValueError for tokens under 0, a page_size under 1, or either not whole.
    """
    return -(-whole("tokens", tokens, least=0) // whole("page_size", page_size))


class PagePool:
    """`pages` pages of `page_size` tokens. Raises ValueError for either under 1."""

    def __init__(self, pages, page_size=PAGE_SIZE):
        self.pages, self.page_size = whole("pages", pages, most=1e7), whole("page_size", page_size)
        self.free = deque(range(self.pages))  # given from the left, taken back on the right
        self.tables = {}  # chat -> the numbers of its pages, in the order of its tokens
        self.promises = {}  # chat -> pages it will hold in the end
        self.promised = 0  # the sum of the promises

    @property
    def held(self):
        """Pages in use now."""
        return self.pages - len(self.free)

    def can_promise(self, tokens):
        """Whether a chat of `tokens` tokens in all can be promised its pages."""
        return self.promised + pages_for(tokens, self.page_size) <= self.pages

    def promise(self, chat, tokens):
        """Set pages aside for all the tokens `chat` will have. Takes none yet.

        Raises ValueError, with nothing changed, if they are not there or it has a promise.
        """
        if chat in self.promises or not self.can_promise(tokens):
            raise ValueError(f"cannot promise {tokens} tokens to chat {chat!r}")
        self.promises[chat] = pages_for(tokens, self.page_size)
        self.promised += self.promises[chat]

    def grow(self, chat, tokens):
        """Take free pages, one at a time, until `chat` has room for `tokens` tokens.

        Raises ValueError, with nothing changed, if fewer are free.
        """
        table = self.tables.get(chat, [])
        missing = pages_for(tokens, self.page_size) - len(table)
        if missing > len(self.free):
            raise ValueError(f"chat {chat!r} needs {missing} more pages, {len(self.free)} are free")
        self.tables[chat] = table + [self.free.popleft() for _ in range(missing)]

    def release(self, chat):
        """Give back the pages and the promise of a chat that has ended."""
        self.free.extend(self.tables.pop(chat))
        self.promised -= self.promises.pop(chat, 0)
