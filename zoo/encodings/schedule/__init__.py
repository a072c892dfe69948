"""Another encoding at another time of training, or in another layer."""
