"""HTTP: RabbitMQ's management API, metrics and the page, of stores that are open here."""
