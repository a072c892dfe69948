"""Texts in the form of WikiText."""

from as_wikitext import as_wikitext


def test_punctuation_hyphens_and_quotes_are_those_of_wikitext():
    given = "Clara's well-known “end” of it, he said.\n\nNo!"
    assert as_wikitext(given) == ' Clara \'s well @-@ known " end " of it , he said . \n  \n No ! \n'
