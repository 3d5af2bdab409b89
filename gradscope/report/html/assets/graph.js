// Draws the inside of a module as a graph.
