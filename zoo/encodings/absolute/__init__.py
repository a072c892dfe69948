"""Added to the token vectors before the first layer, or nothing at all."""
