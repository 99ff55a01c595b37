"""HTTP: RabbitMQ's management API, metrics and the page, for stores that this process has open."""
