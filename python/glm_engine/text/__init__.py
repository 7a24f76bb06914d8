"""Text to tokens and back: tokenizer, chat template, dialogue and grammars."""
