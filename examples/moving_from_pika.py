"""A program for RabbitMQ, moved.  The lines that changed show the line for pika above them.

python examples/moving_from_pika.py STORE
"""

import sys

import pyqstore


def main(path: str) -> None:
    # connection = pika.BlockingConnection(pika.ConnectionParameters("localhost"))
    store = pyqstore.open(path)
    connection = store.connection()
    channel = connection.channel()

    channel.exchange_declare(exchange="logs", exchange_type="topic", durable=True)
    channel.queue_declare(queue="errors", durable=True, arguments={"x-max-length": 1000})
    channel.queue_bind(queue="errors", exchange="logs", routing_key="*.error")

    # channel.confirm_delivery(), after which each basic_publish waits
    channel.confirm_select()
    for number in range(3):
        channel.basic_publish(
            exchange="logs",
            routing_key="web.error",
            body=f"error {number}",
            # properties=pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent),
            properties=pyqstore.Properties(delivery_mode=2),
            mandatory=True,
        )
    channel.wait_for_confirms()  # for all three at once: one fdatasync

    # def callback(channel, method, properties, body):
    def callback(message: pyqstore.Message) -> None:
        print(message.routing_key, message.body.decode())
        # channel.basic_ack(delivery_tag=method.delivery_tag)
        message.ack()
        if message.body == b"error 2":
            channel.stop_consuming()

    channel.basic_qos(prefetch_count=10)
    # channel.basic_consume(queue="errors", on_message_callback=callback)
    channel.basic_consume(queue="errors", callback=callback)
    channel.start_consuming()

    connection.close()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
