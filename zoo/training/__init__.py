"""From a recipe to a trained model in a run folder."""
