"""The draft-model drafter: a smaller model guesses, of the same vocabulary or of another one."""
