"""A model's text as reasoning, content and tool calls, while it arrives."""

from glm_engine.dialogue.answer_finder import AnswerFinder
from glm_engine.dialogue.arguments import whole_members
from glm_engine.dialogue.deltas import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Delta,
    Reasoning,
)
from glm_engine.dialogue.parser import DialogueParser
from glm_engine.dialogue.tags import Opening, opening_of

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
