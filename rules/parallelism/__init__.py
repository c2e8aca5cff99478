"""Rules about parallel sizes: how ranks, batches, losses, meshes and shards are divided among dimensions."""
