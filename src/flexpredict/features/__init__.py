"""Features of images: extraction, files, similarity."""
