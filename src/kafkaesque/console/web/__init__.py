"""The console's HTTP: pages, live parts, JSON API, who may do what. Rules and questions live below."""
