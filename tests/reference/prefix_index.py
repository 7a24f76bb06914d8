"""What a prefix cache holds, known from its events alone.

Events are those of vLLM's published form, by name: a stored chain of blocks with the parent of its
first, removed blocks, and the end of all.
"""


class PrefixIndex:
    """Block hash to the tokens of the whole prefix that ends with the block."""

    def __init__(self):
        self.prefixes: dict[int, tuple] = {}
        self.num_cleared = 0

    def store(self, hashes: list[int], parent: int | None, tokens: list[int], size: int) -> None:
        """A block is stored once, behind a parent that is there."""
        assert len(tokens) == size * len(hashes) > 0
        prefix = () if parent is None else self.prefixes[parent]
        for at, one in enumerate(hashes):
            assert one not in self.prefixes, f"block {one} is stored twice"
            prefix += tuple(tokens[at * size : (at + 1) * size])
            self.prefixes[one] = prefix

    def remove(self, hashes: list[int]) -> None:
        for one in hashes:
            del self.prefixes[one]

    def clear(self) -> None:
        self.prefixes.clear()
        self.num_cleared += 1

    def num_cached_tokens(self, prompt: list[int], size: int) -> int:
        """Tokens of a prompt that are not computed again; the last token always is."""
        known, count = set(self.prefixes.values()), 0
        while count + size < len(prompt) and tuple(prompt[: count + size]) in known:
            count += size
        return count
