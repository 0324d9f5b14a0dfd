"""Drawings of rings, trees and balance: ``layout`` says where things stand, ``text`` draws for a terminal,
``plots`` writes PNG and SVG with matplotlib (the extra ``bench``), which nothing else here imports."""
