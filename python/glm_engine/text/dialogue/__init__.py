"""A model's text as reasoning, content and tool calls, while it arrives."""

from glm_engine.text.dialogue.answer_finder import AnswerFinder
from glm_engine.text.dialogue.arguments import whole_members
from glm_engine.text.dialogue.deltas import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Delta,
    Reasoning,
)
from glm_engine.text.dialogue.parser import DialogueParser
from glm_engine.text.dialogue.tags import Opening, opening_of

__all__ = [
    "AnswerFinder",
    "CallArguments",
    "CallBegin",
    "CallEnd",
    "Content",
    "Delta",
    "DialogueParser",
    "Opening",
    "Reasoning",
    "opening_of",
    "whole_members",
]
