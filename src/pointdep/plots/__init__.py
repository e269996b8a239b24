"""Pictures of results, from plain numbers; each takes a matplotlib axis, or makes one."""
