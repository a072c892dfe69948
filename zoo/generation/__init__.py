"""Text that a trained language model generates after a prompt."""
