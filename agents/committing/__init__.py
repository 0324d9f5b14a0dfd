"""The long work of roots and masters, on threads: panes merged, windows made and committed."""
