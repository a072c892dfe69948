"""Text that a trained language model writes after a prompt."""
