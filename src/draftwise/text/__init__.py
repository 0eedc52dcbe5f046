"""Text without models: what a tokenizer is, text as it grows, comparing vocabularies. No torch."""
