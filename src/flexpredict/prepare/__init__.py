"""Before pre-training: look at images, pack them."""
