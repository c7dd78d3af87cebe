"""Images of any kind, made into WebDataset shards at training resolution, so that reading them is quick."""
