"""The gallery: a site with a page for each encoding, task and protocol, made from the registry."""
