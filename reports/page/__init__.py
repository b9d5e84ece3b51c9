"""What people read: HTML, Markdown, CSV, tables on a terminal."""
