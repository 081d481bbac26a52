"""From text to token ids and back: tokenizers built from GGUF metadata, chat templates, and the parts that turn a
stream of tokens into text (incremental detokenizer, stop strings)."""

from paceline.tokenizer.detokenizer import IncrementalDetokenizer
from paceline.tokenizer.stop_strings import StopMatch, StopStringMatcher
from paceline.tokenizer.template_pool import MAX_TEMPLATE_PROCESSES
from paceline.tokenizer.tokenizer import Tokenizer

__all__ = ["MAX_TEMPLATE_PROCESSES", "IncrementalDetokenizer", "StopMatch", "StopStringMatcher", "Tokenizer"]
