"""Command-line tools: each module is one of them, with its own `--help`."""
