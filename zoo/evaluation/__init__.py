"""How trained models behave at lengths they were not trained on."""
