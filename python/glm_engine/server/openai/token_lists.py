"""What answers list of tokens where vLLM's fields ask for it: ids, log-probabilities of prompts."""

from array import array

from glm_engine.server.long_json import LongList
from glm_engine.server.openai.logprobs import PromptRows, prompt_entries


class TokenLists:
    """The lists of a job's choices; each method gives fields of the answer, none unless asked."""

    def __init__(self, service, job, fields):
        self.service = service
        self.has_ids = bool(fields.return_token_ids)
        self.num_best = fields.prompt_logprobs
        self.ids = [array("i") for _ in job.choices]

    def take(self, choice, piece):
        """Keep what a piece of a whole answer adds."""
        if self.has_ids:
            self.ids[choice.index].extend(piece.token_ids)

    def of_piece(self, piece):
        return {"token_ids": piece.token_ids} if self.has_ids else {}

    def of_choice(self, choice):
        return {"token_ids": self.ids[choice.index].tolist()} if self.has_ids else {}

    def of_prompt(self, choice):
        made = {}
        if self.has_ids:
            made["prompt_token_ids"] = choice.request.prompt.tolist()
        if self.num_best is not None:
            rows = PromptRows(choice, self.num_best)
            made["prompt_logprobs"] = LongList(prompt_entries(self.service, rows))
        return made
