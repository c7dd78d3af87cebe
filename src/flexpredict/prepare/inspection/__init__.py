"""What is in a set of images, as numbers and as a picture."""
