"""Pages of tables and plots from records. Imports no torch: a report is made wherever records lie."""
