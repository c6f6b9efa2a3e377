"""Google's own fake of Pub/Sub as a server: ours is only `main.go`, and the building of it."""
