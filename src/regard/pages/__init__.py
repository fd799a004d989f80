"""HTML pages: templates and their assets, saved documents, and the guard of local servers."""
