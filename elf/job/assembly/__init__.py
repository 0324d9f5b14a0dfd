"""Windows out of panes, each of which is merged a few times at most."""
