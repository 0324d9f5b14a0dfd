"""What an agent computes of its lines: which rows are in which pane, and when a pane is sealed."""
