"""A KV cache that really stores keys and values, page by page, in NumPy arrays.

Introduced in the chapter "Pages". It shows what a page table is for: attention looks the
pages up and gets the same numbers as over one unbroken array. It keeps its own tables
and free list, so that tests can hold it against `tinyserve.cache.PagePool`.
"""

import numpy as np

from tinyserve.cache import PAGE_SIZE
from tinyserve.checks import whole


class PagedKV:
    """Keys and values of many chats in one array of `pages` pages.

    The array has shape (2, layers, pages, page_size, heads, head_size): keys at index 0,
    values at index 1. Raises ValueError for a size under 1.
    """

    def __init__(self, pages, layers, heads, head_size, page_size=PAGE_SIZE, dtype=np.float64):
        sizes = {"layers": layers, "pages": pages, "page_size": page_size}
        sizes |= {"heads": heads, "head_size": head_size}
        self.data = np.zeros([2, *(whole(name, size) for name, size in sizes.items())], dtype)
        self.free = list(range(self.data.shape[2]))
        self.tables = {}  # chat -> page numbers
        self.lengths = {}  # chat -> tokens stored

    def append(self, chat, keys, values):
        """Store some tokens at the end of a chat, which is new if it has none yet.

        keys, values: arrays of shape (tokens, layers, heads, head_size). Raises ValueError,
        with nothing stored, for another shape or when the free pages do not suffice.
        """
        keys, values = (np.asarray(array, self.data.dtype) for array in (keys, values))
        _, layers, pages, page_size, heads, head_size = self.data.shape
        for name, array in (("keys", keys), ("values", values)):
            if array.shape != (*keys.shape[:1], layers, heads, head_size):
                raise ValueError(
                    f"{name} must have the shape (tokens, {layers}, {heads}, {head_size}) with "
                    f"as many tokens as the keys, not {array.shape}"
                )
        table, length = self.tables.get(chat, []), self.lengths.get(chat, 0)
        end = length + len(keys)
        missing = -(-end // page_size) - len(table)
        if missing > len(self.free):
            raise ValueError(
                f"chat {chat!r} needs {missing} more pages, {len(self.free)} of {pages} are free"
            )
        table = table + self.free[:missing]
        del self.free[:missing]
        self.tables[chat], self.lengths[chat] = table, end
        for token, at in enumerate(range(length, end)):
            page, place = table[at // page_size], at % page_size
            self.data[0, :, page, place] = keys[token]
            self.data[1, :, page, place] = values[token]

    def gather(self, chat):
        """A chat's keys and values in the order written.

        Two arrays of shape (tokens, layers, heads, head_size). Raises KeyError for a chat
        that stores nothing.
        """
        pages = self.data[:, :, self.tables[chat]]  # (2, layers, its pages, page_size, ...)
        both, layers, _, _, heads, head_size = pages.shape
        flat = pages.reshape(both, layers, -1, heads, head_size)[:, :, : self.lengths[chat]]
        keys, values = flat.swapaxes(1, 2)
        return keys, values

    def attend(self, chat, layer, query):
        """Attention of one query over a chat's stored tokens, read through its page table.

        query: shape (heads, head_size); so is the result. The softmax of q.k / sqrt(head
        size), times the values: scaled dot-product attention (Vaswani et al., 2017). Raises
        ValueError for a query of another shape.
        """
        query, shape = np.asarray(query), self.data.shape[-2:]
        if query.shape != shape:
            raise ValueError(f"query must have the shape {shape}, not {query.shape}")
        keys, values = self.gather(chat)
        return attention(query, keys[:, layer], values[:, layer])

    def release(self, chat):
        """Give a chat's pages back, on the right of the free list, in the order of its table."""
        self.free += self.tables.pop(chat)
        del self.lengths[chat]


def attention(query, keys, values):
    """Scaled dot-product attention of one query (heads, head_size) over keys and values
    (tokens, heads, head_size), the plain way. Returns (heads, head_size)."""
    scores = np.einsum("hd,thd->ht", query, keys) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("ht,thd->hd", weights, values)
