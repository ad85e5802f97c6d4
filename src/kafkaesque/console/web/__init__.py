"""The console's HTTP server: pages, live updates, JSON API and access control."""
