"""Where images come from: folders, shards, tables, the hub, streams."""
