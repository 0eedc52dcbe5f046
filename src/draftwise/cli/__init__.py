"""The command line. `draftwise --help` imports neither torch nor transformers: commands import late."""
