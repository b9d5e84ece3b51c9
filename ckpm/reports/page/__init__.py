"""Reports for people: HTML, Markdown, CSV, tables on a terminal."""
