"""Sources of images: folders, shards, tables, the hub, streams."""
