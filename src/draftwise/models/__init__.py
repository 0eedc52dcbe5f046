"""Models behind one narrow seam, `runner.Runner`. The only layer that imports transformers."""
