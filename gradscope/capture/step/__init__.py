"""One forward and backward: graph, operation sites, module calls, gradient hooks, cuts."""
