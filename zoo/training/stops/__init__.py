"""What ends a run before its last step: who asks for it, what goes wrong, and what is told then."""
