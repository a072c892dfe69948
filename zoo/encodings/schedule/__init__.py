"""Another encoding at another time of training, in another layer, or in other heads."""
