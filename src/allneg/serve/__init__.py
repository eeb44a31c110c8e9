"""The explorer: a web service and a page on trained runs."""
