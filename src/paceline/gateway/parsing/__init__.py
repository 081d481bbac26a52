"""Turns the text of an answer into reasoning, content and tool calls, and writes grammars that force valid tool calls.

`answer_parser` is the entry. `formats` holds one file for each way in which models write calls. Nothing here knows HTTP
or the engine.
"""
