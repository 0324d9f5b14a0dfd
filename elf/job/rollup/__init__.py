"""What goes up a flow's tree, pieces of panes, and comes down it: what its root has committed."""
