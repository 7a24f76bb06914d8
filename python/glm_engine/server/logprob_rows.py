"""Log-probabilities as they are held: 8 bytes for each, whatever their JSON takes."""

from array import array


class LogprobRows:
    """A list of (token id, log-probability, [(token id, log-probability) of the best tokens]).

    All rows of one list have equally many best tokens. A token without a log-probability has NaN,
    which JSON tells as null.
    """

    __slots__ = ("ids", "values", "width")

    def __init__(self):
        self.width = 0
        self.ids = array("i")
        self.values = array("f")

    def append(self, token_id, logprob, best_ids=(), best_logprobs=()):
        width = 1 + len(best_ids)
        if self.ids and width != self.width:
            raise ValueError(f"a row of {width - 1} best tokens among rows of {self.width - 1}")
        self.width = width
        self.ids.extend((token_id, *best_ids))
        self.values.extend((logprob, *best_logprobs))

    def extend(self, rows, begin=0, end=None):
        """Take the rows of another list, or those from `begin` up to `end`."""
        if not rows:
            return
        if self.ids and rows.width != self.width:
            raise ValueError(f"rows of {rows.width - 1} best tokens among rows of {self.width - 1}")
        self.width = rows.width
        last = None if end is None else end * self.width
        self.ids += rows.ids[begin * self.width : last]
        self.values += rows.values[begin * self.width : last]

    def part(self, begin, end=None):
        """Return the rows from `begin` up to `end` as a list of its own."""
        made = LogprobRows()
        made.extend(self, begin, end)
        return made

    def __len__(self):
        return len(self.ids) // self.width if self.ids else 0

    def __getitem__(self, at):
        if not 0 <= at < len(self):
            raise IndexError(f"row {at} of {len(self)}")
        begin, end = at * self.width, (at + 1) * self.width
        token_id, *best_ids = self.ids[begin:end]
        logprob, *best_logprobs = self.values[begin:end]
        return token_id, logprob, list(zip(best_ids, best_logprobs, strict=True))
