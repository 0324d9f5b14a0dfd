"""Pictures of a simulated overlay, its ring, one of its trees and its balance: ``scene`` says what is drawn,
``text`` draws for a terminal, ``plots`` writes PNG and SVG."""
