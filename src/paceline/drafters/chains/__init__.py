"""What drafters that run a model share: batches of token runs, drawing tokens from logits, and drafts that grow."""
