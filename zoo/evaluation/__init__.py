"""Scores of trained models at lengths they were not trained on."""
