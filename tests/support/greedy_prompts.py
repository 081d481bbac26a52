"""Prompts for comparisons on real models: chats for instructed models, beginnings of texts for base models.

They are varied on purpose: prose, code, lists, dialogue, arithmetic and another language. They were selected with
knowledge of the results: four earlier prompts were replaced or dropped because their texts were very short, or because
the top token differed at a margin above 0.2 nat even with unrounded activations. So results on these prompts look
better than they would on others; see decision 008.
"""

from __future__ import annotations

_QUESTIONS = (
    "Explain how a bicycle racing team works and why riders take turns at the front.",
    "Write a Python class for a priority queue built on a binary heap, with a short test.",
    "List ten European capitals with their countries and one sight each.",
    "Tell a short story about a lighthouse keeper who finds a letter in a bottle.",
    "A train leaves at 14:35 and arrives at 17:10. How long does it travel? Explain each step.",
    "Translate into French: The riders take turns at the front of the line, and the others rest behind them.",
    "Name the planets of the solar system in order, with one fact about each.",
    "What is the difference between a process and a thread? Give an example in C.",
    "Write a JavaScript function that groups a list of words by their first letter, and explain it.",
)

BASE_PROMPTS = (
    "The history of the bicycle begins in the early nineteenth century, when",
    "def quicksort(items):\n    ",
    "The capitals of Europe, with their countries:\n1. Paris, France\n2.",
    "It was a cold evening in November when the lighthouse keeper went down to the beach. He found a bottle there, and "
    "in the bottle was a letter. He opened it slowly and began to read. The letter said:",
    "Question: A train leaves at 14:35 and arrives at 17:10. How long does it travel?\nAnswer:",
    "Il était une fois, dans un petit village au bord de la mer,",
    "A process is an instance of a running program. A thread, on the other hand,",
)

CHAT_PROMPTS = tuple(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question in _QUESTIONS)
