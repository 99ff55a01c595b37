import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * What a consumer answers to a delivery, with RabbitMQ's Java client: each answer as a consumer in
 * Java gives it, and as one of .NET does, which raises events and takes the server's tag. What the
 * server at a port did is told in lines; "==" begins a part.
 *
 * <p>An answer is given to every delivery, and to the fourth of four alone: so it shows whether it
 * is for those before, too.
 */
public final class Consumers {
    private static final String QUEUE = "documents";
    private static final String GIVEN_TAG = "a-consumer-tag";
    private static final String MADE_TAG = "amq.ctag-";
    private static final int PATIENCE_S = 60;
    private static final int SEVERAL = 4;

    private static Connection connection;

    /** What is done with a delivery. */
    interface Answer {
        void to(Channel channel, long deliveryTag) throws IOException;
    }

    /** What hears of a delivery. */
    interface Handler {
        void handle(String consumerTag, Envelope envelope, byte[] body) throws IOException;
    }

    /** How a program subscribes to the queue. */
    interface Style {
        void consume(Channel channel, Handler handler) throws IOException;
    }

    /** Whoever wants deliveries adds a handler, as to an event of .NET. */
    static final class EventingConsumer extends DefaultConsumer {
        final List<Handler> received = new ArrayList<>();

        EventingConsumer(Channel channel) {
            super(channel);
        }

        @Override
        public void handleDelivery(String consumerTag, Envelope envelope,
                AMQP.BasicProperties properties, byte[] body) throws IOException {
            for (Handler each : received) {
                each.handle(consumerTag, envelope, body.clone());
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setPort(Integer.parseInt(arguments[0]));
        connection = factory.newConnection();
        try {
            answer("java", Consumers::consumeInJava);
            answer(".net", Consumers::consumeInDotNet);
            acknowledgeNothing();
        } finally {
            connection.close();
        }
    }

    private static void consumeInJava(Channel channel, Handler handler) throws IOException {
        boolean autoAck = false;
        channel.basicConsume(QUEUE, autoAck, GIVEN_TAG, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String consumerTag, Envelope envelope,
                    AMQP.BasicProperties properties, byte[] body) throws IOException {
                handler.handle(consumerTag, envelope, body);
            }
        });
    }

    private static void consumeInDotNet(Channel channel, Handler handler) throws IOException {
        EventingConsumer consumer = new EventingConsumer(channel);
        consumer.received.add(handler);
        channel.basicConsume(QUEUE, false, consumer);
    }

    private static void answer(String language, Style style) throws Exception {
        String part = "== 001 " + language;
        say(part, "acknowledge one");
        always(style, SEVERAL, SEVERAL, 0, Consumers::acknowledgeOne);
        last(style, SEVERAL, 3, Consumers::acknowledgeOne);
        say(part, "acknowledge up to");
        always(style, SEVERAL, SEVERAL, 0, Consumers::acknowledgeUpTo);
        last(style, SEVERAL, 0, Consumers::acknowledgeUpTo);
        say(part, "discard");
        always(style, SEVERAL, SEVERAL, 0, Consumers::discard);
        last(style, SEVERAL, 3, Consumers::discard);
        say(part, "requeue");
        always(style, 1, 3, 1, Consumers::requeue);
        last(style, SEVERAL + 1, SEVERAL, Consumers::requeue);
        say(part, "requeue up to");
        always(style, 1, 3, 1, Consumers::requeueUpTo);
        last(style, 2 * SEVERAL, SEVERAL, Consumers::requeueUpTo);
    }

    private static void acknowledgeOne(Channel channel, long deliveryTag) throws IOException {
        channel.basicAck(deliveryTag, false);
    }

    private static void acknowledgeUpTo(Channel channel, long deliveryTag) throws IOException {
        channel.basicAck(deliveryTag, true);
    }

    private static void discard(Channel channel, long deliveryTag) throws IOException {
        channel.basicReject(deliveryTag, false);
    }

    private static void requeue(Channel channel, long deliveryTag) throws IOException {
        channel.basicReject(deliveryTag, true);
    }

    private static void requeueUpTo(Channel channel, long deliveryTag) throws IOException {
        channel.basicNack(deliveryTag, true, true);
    }

    private static void always(Style style, int count, int deliveries, int left, Answer answer)
            throws Exception {
        consume(style, 0, count, deliveries, left, answer);
    }

    private static void last(Style style, int deliveries, int left, Answer answer)
            throws Exception {
        consume(style, 0, SEVERAL, deliveries, left, (channel, deliveryTag) -> {
            if (deliveryTag == SEVERAL) {
                answer.to(channel, deliveryTag);
            }
        });
    }

    /** A channel that ends gives back what it had, and at most prefetch messages come to it. */
    private static void acknowledgeNothing() throws Exception {
        say("== prefetch");
        consume(Consumers::consumeInJava, 2, 5, 2, 5, (channel, deliveryTag) -> { });
    }

    /** Publish so many, and consume until so many deliveries came; what is left is told. */
    private static void consume(Style style, int prefetch, int count, int deliveries, int left,
            Answer answer) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare(QUEUE, true, false, false, null);
        for (int i = 1; i <= count; i++) {
            channel.basicPublish("", QUEUE, MessageProperties.PERSISTENT_TEXT_PLAIN,
                    ("m" + i).getBytes(StandardCharsets.UTF_8));
        }
        channel.basicQos(prefetch);
        CountDownLatch all = new CountDownLatch(deliveries);
        style.consume(channel, (consumerTag, envelope, body) -> {
            if (all.getCount() > 0) { // those that are requeued come for ever
                say(consumerTag.startsWith(MADE_TAG) ? MADE_TAG : consumerTag,
                        envelope.getDeliveryTag(), new String(body, StandardCharsets.UTF_8),
                        envelope.isRedeliver());
                answer.to(channel, envelope.getDeliveryTag());
                all.countDown();
            }
        });
        if (!all.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("waited for " + all.getCount() + " more");
        }
        channel.close();
        Channel after = connection.createChannel();
        say("left", count(after, left));
        after.queueDelete(QUEUE);
        after.close();
    }

    /** Ready messages, once they are as many as they should be: a server may requeue late. */
    private static long count(Channel channel, long expected) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (channel.messageCount(QUEUE) != expected && System.nanoTime() < end) {
            Thread.sleep(1);
        }
        return channel.messageCount(QUEUE);
    }

    private static synchronized void say(Object... what) {
        StringBuilder line = new StringBuilder();
        for (Object each : what) {
            line.append(line.length() == 0 ? "" : ", ").append(each);
        }
        System.out.println(line);
    }
}
