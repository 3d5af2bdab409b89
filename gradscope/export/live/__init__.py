"""Numbers and findings of a running training, and the experiment trackers that show them."""
