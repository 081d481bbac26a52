"""The draft-model drafter: a smaller model guesses. Its vocabulary may differ from the target's."""
