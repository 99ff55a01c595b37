import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** RabbitMQ's client, for AMQP 0-9-1, in the benchmark of rivals. */
final class Client {
    /** The arguments: port, prefetch, seconds to wait at most; the queue's, as name=value. */
    public static void main(String[] arguments) throws Exception {
        Requests.serve(() -> new Queue(
                Integer.parseInt(arguments[0]),
                Integer.parseInt(arguments[1]),
                Integer.parseInt(arguments[2]),
                Arrays.copyOfRange(arguments, 3, arguments.length)));
    }
}

/** A durable queue, with a connection that publishes to it and one that receives from it. */
final class Queue implements Requests.Client {
    private static final String NAME = "queue";
    private static final BasicProperties PERSISTENT = MessageProperties.MINIMAL_PERSISTENT_BASIC;
    private static final int RETRY_MS = 100;

    private final int waitSeconds;
    private final Channel publisher;
    private final Channel receiver;
    private final Confirms confirms = new Confirms();

    Queue(int port, int prefetch, int waitSeconds, String[] arguments) throws Exception {
        this.waitSeconds = waitSeconds;
        var factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(port);
        factory.setAutomaticRecoveryEnabled(false); // a server that ends is a failure
        publisher = connect(factory).createChannel();
        receiver = connect(factory).createChannel();
        publisher.confirmSelect();
        publisher.addConfirmListener(confirms);
        receiver.basicQos(prefetch);
        Map<String, Object> declared = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            declared.put(pair[0], pair[1].matches("\\d+") ? Integer.valueOf(pair[1]) : pair[1]);
        }
        publisher.queueDeclare(NAME, true, false, false, declared);
    }

    @Override
    public String server() {
        Map<String, Object> server = publisher.getConnection().getServerProperties();
        Object library = publisher.getConnection().getClientProperties().get("version");
        String told = "RabbitMQ %s on %s, amqp-client %s on Java %s";
        String java = System.getProperty("java.version");
        return String.format(told, server.get("version"), server.get("platform"), library, java);
    }

    @Override
    public double publish(byte[][] bodies, int outstanding) throws Exception {
        var room = new Semaphore(outstanding);
        confirms.expect(room);
        long begin = System.nanoTime();
        for (byte[] body : bodies) {
            acquire(room, 1);
            publisher.basicPublish("", NAME, PERSISTENT, body);
        }
        acquire(room, outstanding);
        double seconds = (System.nanoTime() - begin) / 1e9;
        confirms.check();
        return seconds;
    }

    /**
     * Until the broker has acknowledgements of all. AMQP has no confirm for these: a declaration
     * behind the last one is answered after it.
     */
    @Override
    public double consume(byte[][] bodies, int ackEvery) throws Exception {
        var receiving = new Receiving(receiver, bodies, ackEvery);
        long begin = System.nanoTime();
        String tag = receiver.basicConsume(NAME, false, receiving);
        acquire(receiving.done, 1);
        receiver.queueDeclarePassive(NAME);
        double seconds = (System.nanoTime() - begin) / 1e9;
        receiver.basicCancel(tag);
        receiving.check();
        return seconds;
    }

    private Connection connect(ConnectionFactory factory) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(waitSeconds);
        while (true) {
            try {
                return factory.newConnection();
            } catch (IOException error) { // it listens a moment before it lets anybody in
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(RETRY_MS);
            }
        }
    }

    private void acquire(Semaphore permits, int count) throws Exception {
        if (permits.tryAcquire(count)) {
            return;
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(waitSeconds);
        while (!permits.tryAcquire(count, 1, TimeUnit.SECONDS)) {
            for (Channel channel : new Channel[] {publisher, receiver}) {
                if (!channel.isOpen()) {
                    throw new IOException("a channel was closed", channel.getCloseReason());
                }
            }
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("no answer in " + waitSeconds + " s");
            }
        }
    }
}

/** Makes room for each message that is confirmed; the connection's own thread calls it. */
final class Confirms implements ConfirmListener {
    private volatile Semaphore room = new Semaphore(0);
    private volatile int refused;
    private long settledUpTo; // every tag up to here is settled
    private final TreeSet<Long> settledBeyond = new TreeSet<>();

    void expect(Semaphore semaphore) {
        room = semaphore;
    }

    void check() throws IOException {
        if (refused != 0) {
            throw new IOException("the broker refused " + refused + " messages");
        }
    }

    @Override
    public void handleAck(long tag, boolean multiple) {
        room.release(settle(tag, multiple));
    }

    @Override
    public void handleNack(long tag, boolean multiple) {
        int count = settle(tag, multiple);
        refused += count;
        room.release(count);
    }

    /** Confirms come in any order, and one that is multiple takes those before it that are left. */
    private int settle(long tag, boolean multiple) {
        int count = 1;
        if (multiple) {
            var before = settledBeyond.headSet(tag, true);
            count = (int) (tag - settledUpTo) - before.size();
            before.clear();
            settledUpTo = tag;
        } else {
            settledBeyond.add(tag);
        }
        while (settledBeyond.remove(settledUpTo + 1)) {
            settledUpTo++;
        }
        return count;
    }
}

/** Takes what is delivered and acknowledges so many at once, and the last. */
final class Receiving extends DefaultConsumer {
    final Semaphore done = new Semaphore(0);

    private final byte[][] bodies;
    private final int ackEvery;
    private int received;
    private volatile String failure;

    Receiving(Channel channel, byte[][] bodies, int ackEvery) {
        super(channel);
        this.bodies = bodies;
        this.ackEvery = ackEvery;
    }

    void check() throws IOException {
        if (failure != null) {
            throw new IOException(failure);
        }
    }

    @Override
    public void handleDelivery(
            String tag, Envelope envelope, BasicProperties properties, byte[] body)
            throws IOException {
        if (received == bodies.length) {
            failure = "more messages came than the " + received + " that were asked for";
            return;
        }
        bodies[received++] = body;
        if (received % ackEvery == 0 || received == bodies.length) {
            getChannel().basicAck(envelope.getDeliveryTag(), true);
        }
        if (received == bodies.length) {
            done.release();
        }
    }

    @Override
    public void handleCancel(String tag) {
        failure = "the broker cancelled the consumer";
        done.release();
    }

    @Override
    public void handleShutdownSignal(String tag, ShutdownSignalException reason) {
        failure = "the channel was closed: " + reason.getMessage();
        done.release();
    }
}
