"""The world's models: between the zoo's runs and the folders that `transformers` reads."""
