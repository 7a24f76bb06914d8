"""Log-probabilities as they are held: 8 bytes for each, whatever their JSON takes."""

from array import array


class LogprobRows:
    """A list of (token id, log-probability, [(token id, log-probability) of the best tokens]).

    A mask that allows few tokens leaves a row fewer of the best than others have.
    """

    __slots__ = ("ends", "ids", "values")

    def __init__(self):
        self.ids = array("i")
        self.values = array("f")
        self.ends = array("i")

    def append(self, token_id, logprob, best_ids=(), best_logprobs=()):
        self.ids.extend((token_id, *best_ids))
        self.values.extend((logprob, *best_logprobs))
        self.ends.append(len(self.ids))

    def extend(self, rows, begin=0, end=None):
        """Take the rows of another list, or those from `begin` up to `end`."""
        if not rows:
            return
        ends = rows.ends[begin:end]
        first, last = rows.begin_of(begin), ends[-1] if ends else 0
        shift = len(self.ids) - first
        self.ids += rows.ids[first:last]
        self.values += rows.values[first:last]
        self.ends.extend(one + shift for one in ends)

    def part(self, begin, end=None):
        """Return the rows from `begin` up to `end` as a list of its own."""
        made = LogprobRows()
        made.extend(self, begin, end)
        return made

    def begin_of(self, at):
        return self.ends[at - 1] if at else 0

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, at):
        if not 0 <= at < len(self):
            raise IndexError(f"row {at} is out of range for {len(self)} rows")
        begin, end = self.begin_of(at), self.ends[at]
        token_id, *best_ids = self.ids[begin:end]
        logprob, *best_logprobs = self.values[begin:end]
        return token_id, logprob, list(zip(best_ids, best_logprobs, strict=True))
