import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Acknowledgements of publishers, those that a server refuses, and dead letters, with RabbitMQ's
 * Java client. What the server at a port did is told in lines; "==" begins a part.
 */
public final class Acknowledgements {
    private static final String QUEUE = "documents";
    private static final int PATIENCE_S = 60;
    private static final int MANY = 100;

    private static Connection connection;

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setPort(Integer.parseInt(arguments[0]));
        connection = factory.newConnection();
        try {
            deadLetters();
            confirms();
            returns();
            transactions();
            unknownTag();
            pull();
        } finally {
            connection.close();
        }
    }

    private static void deadLetters() throws Exception {
        say("== dead letters");
        Channel channel = connection.createChannel();
        channel.queueDeclare("rejected", true, false, false, null);
        channel.queueDeclare("refusing", true, false, false,
                Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "rejected"));
        channel.basicPublish("", "refusing", MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("m"));
        GetResponse got = channel.basicGet("refusing", false);
        channel.basicNack(got.getEnvelope().getDeliveryTag(), false, false);
        GetResponse dead = awaited(channel, "rejected");
        Map<?, ?> death = (Map<?, ?>) ((List<?>) dead.getProps().getHeaders().get("x-death")).get(0);
        say("dead letter", text(dead.getBody()), death.get("reason"), death.get("queue"),
                death.get("count"), death.get("routing-keys"),
                dead.getProps().getHeaders().get("x-first-death-queue"));
        channel.queueDelete("refusing");
        channel.queueDelete("rejected");
        channel.close();
    }

    private static void confirms() throws Exception {
        say("== 000 java, publish many and wait");
        Channel channel = begin();
        TreeSet<Long> acked = new TreeSet<>();
        List<Long> nacked = new ArrayList<>();
        channel.addConfirmListener(new ConfirmListener() {
            private long last;

            @Override
            public void handleAck(long tag, boolean multiple) {
                for (long each = multiple ? last + 1 : tag; each <= tag; each++) {
                    acked.add(each);
                }
                last = Math.max(last, tag);
            }

            @Override
            public void handleNack(long tag, boolean multiple) {
                nacked.add(tag);
            }
        });
        say("confirm.select", channel.confirmSelect().getClass().getInterfaces()[0].getSimpleName());
        say("next number", channel.getNextPublishSeqNo());
        for (int i = 0; i < MANY; i++) {
            channel.basicPublish("", QUEUE, MessageProperties.PERSISTENT_BASIC, bytes("c" + i));
        }
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000L);
        say("confirmed", acked.first(), acked.last(), acked.size(), nacked);
        end(channel);
    }

    /** The return of a message that no queue takes comes before its confirm. */
    private static void returns() throws Exception {
        say("== returns");
        Channel channel = begin();
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        channel.confirmSelect();
        channel.addReturnListener((code, reason, exchange, key, properties, body) ->
                heard.add("returned " + code + " " + reason + " '" + exchange + "' " + key + " "
                        + properties.getContentType() + " " + text(body)));
        channel.addConfirmListener((tag, multiple) -> heard.add("ack " + tag),
                (tag, multiple) -> heard.add("nack " + tag));
        publishMandatory(channel, "nowhere", "lost");
        publishMandatory(channel, QUEUE, "kept");
        say("returns", heard);
        end(channel);
    }

    private static void publishMandatory(Channel channel, String key, String body)
            throws Exception {
        channel.basicPublish("", key, true, MessageProperties.PERSISTENT_TEXT_PLAIN, bytes(body));
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000L);
    }

    private static void transactions() throws Exception {
        say("== transactions");
        Channel channel = begin();
        channel.txSelect();
        channel.basicPublish("", QUEUE, null, bytes("rolled back"));
        channel.txRollback();
        channel.basicPublish("", QUEUE, null, bytes("committed"));
        say("before the commit", count(channel, 0));
        channel.txCommit();
        say("after the commit", count(channel, 1));
        try {
            channel.confirmSelect();
        } catch (IOException error) {
            say("confirm.select", reason(error.getCause()));
        }
        end(connection.createChannel());
    }

    private static void unknownTag() throws Exception {
        say("== unknown tag");
        Channel channel = begin();
        CountDownLatch closed = new CountDownLatch(1);
        channel.addShutdownListener(cause -> {
            say("channel closed", reason(cause));
            closed.countDown();
        });
        channel.basicAck(7, false);
        await(closed);
        try {
            channel.basicAck(8, false);
        } catch (AlreadyClosedException error) {
            say("already closed", reason(error));
        }
        end(connection.createChannel());
    }

    private static void pull() throws Exception {
        say("== pull");
        Channel channel = begin();
        publish(channel, 2);
        GetResponse first = channel.basicGet(QUEUE, false);
        say("get", text(first.getBody()), first.getMessageCount(),
                first.getEnvelope().isRedeliver(), first.getProps().getDeliveryMode());
        channel.basicRecover(true);
        GetResponse again = channel.basicGet(QUEUE, true);
        say("get", text(again.getBody()), again.getEnvelope().isRedeliver());
        say("get", text(channel.basicGet(QUEUE, true).getBody()));
        say("get", channel.basicGet(QUEUE, true));
        end(channel);
    }

    private static Channel begin() throws IOException {
        Channel channel = connection.createChannel();
        channel.queueDeclare(QUEUE, true, false, false, null);
        return channel;
    }

    private static void end(Channel channel) throws Exception {
        say("deleted", channel.queueDelete(QUEUE).getMessageCount());
        channel.close();
    }

    private static void publish(Channel channel, int count) throws IOException {
        for (int i = 1; i <= count; i++) {
            channel.basicPublish("", QUEUE, MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("m" + i));
        }
    }

    /** Ready messages, once they are as many as they should be: a server may requeue late. */
    private static long count(Channel channel, long expected) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (channel.messageCount(QUEUE) != expected && System.nanoTime() < end) {
            Thread.sleep(1);
        }
        return channel.messageCount(QUEUE);
    }

    private static GetResponse awaited(Channel channel, String queue) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        GetResponse got = channel.basicGet(queue, true);
        while (got == null && System.nanoTime() < end) {
            Thread.sleep(1);
            got = channel.basicGet(queue, true);
        }
        return got;
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        if (!latch.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("waited for " + latch.getCount() + " more");
        }
    }

    private static String reason(Throwable error) {
        return ((ShutdownSignalException) error).getReason().toString();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    private static synchronized void say(Object... what) {
        StringBuilder line = new StringBuilder();
        for (Object each : what) {
            line.append(line.length() == 0 ? "" : ", ").append(each);
        }
        System.out.println(line);
    }
}
