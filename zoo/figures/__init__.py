"""The project's pictures: colours, marks and captions are decided here, once."""
